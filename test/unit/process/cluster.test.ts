import cluster, { type Worker } from "node:cluster";
import { EventEmitter } from "node:events";
import { afterEach, beforeEach, expect, it, type MockInstance, onTestFinished, vi } from "vitest";
import { createLog } from "../../../src/observe/log.js";
import {
  type ClusterOptions,
  openCluster,
  type WorkerCalls,
  type WorkerRequest,
} from "../../../src/process/cluster.js";
import { appOptions } from "../../support/app-options.js";

/** How a worker responds to a call. Undefined: it does not. */
type Respond = (call: keyof WorkerCalls, worker: SimulatedWorker) => unknown;

/** A worker without a process. */
class SimulatedWorker extends EventEmitter {
  readonly process = { pid: 1, disconnect: () => this.exit(), kill: () => this.exit() };
  #isRunning = true;

  constructor(readonly respond: Respond) {
    super();
    setImmediate(() => this.emit("message", { id: 0 }));
  }

  isConnected(): boolean {
    return this.#isRunning;
  }

  send({ id, call }: WorkerRequest): void {
    const value = this.respond(call, this);
    if (value !== undefined) this.emit("message", { id, value });
  }

  exit(): void {
    this.#isRunning = false;
    this.emit("exit", 1, null);
  }
}

const addresses = { httpUrl: "http://127.0.0.1:1", grpcAddress: "127.0.0.1:2" };
const serves: Respond = (call) => (call === "open" ? addresses : null);
const counting = (count: number) => {
  const metric = { name: "calls", help: "calls", type: "counter", aggregator: "sum", values: [] };
  return [{ ...metric, values: [{ labels: {}, value: count }] }];
};

let fork: MockInstance<typeof cluster.fork>;
let setupPrimary: MockInstance<typeof cluster.setupPrimary>;
beforeEach(() => {
  fork = vi.spyOn(cluster, "fork").mockImplementation(() => worker(serves));
  setupPrimary = vi.spyOn(cluster, "setupPrimary").mockImplementation(() => {});
});
afterEach(() => void vi.restoreAllMocks());

const worker = (respond: Respond) => new SimulatedWorker(respond) as unknown as Worker;

/** Opens a cluster of these workers. Replacements of the last one only serve. */
async function open(...workers: readonly Respond[]) {
  for (const respond of workers) fork.mockImplementationOnce(() => worker(respond));
  const lines: { msg: string; worker?: number; reason?: string }[] = [];
  const log = createLog("info", { destination: { write: (line) => void lines.push(JSON.parse(line)) } });
  const options = { ...appOptions, workers: Math.max(workers.length, 1), logLevel: "info", log } as const;
  const app = await openCluster(options as unknown as ClusterOptions);
  onTestFinished(() => app.close());
  const counted = async () => (await (await app.metrics()).getSingleMetric("calls")?.get())?.values[0]?.value;
  return { counted, logged: (text: string) => lines.filter(({ msg }) => msg.includes(text)) };
}

it("counters are neither counted twice nor fall if a worker exits while its metrics are read", async () => {
  let reads = 0;
  const { counted, logged } = await open((call, self) => {
    if (call !== "readMetrics") return serves(call, self);
    return ++reads === 1 ? counting(5) : self.exit();
  });
  fork.mockImplementationOnce(() =>
    worker((call, self) => (call === "readMetrics" ? counting(1) : serves(call, self))),
  );
  expect(await counted()).toBe(5);
  expect(await counted(), "the worker exits").toBe(5);
  expect(await counted(), "it is not replaced yet").toBe(5);
  await expect.poll(() => logged("was replaced"), { timeout: 5_000 }).toHaveLength(1);
  expect(await counted()).toBe(6);
});

it("connections are distributed by round robin, whatever policy the environment has set", async () => {
  const before = cluster.schedulingPolicy;
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  onTestFinished(() => {
    cluster.schedulingPolicy = before;
  });
  let policy: number | undefined;
  setupPrimary.mockImplementation(() => {
    policy ??= cluster.schedulingPolicy; // Node does not read it again
  });
  await open();
  expect(policy).toBe(cluster.SCHED_RR);
});

it("a replacement that cannot be started is tried again, while the other workers serve", async () => {
  let exit = () => {};
  const { logged } = await open((call, self) => {
    exit = () => self.exit();
    return serves(call, self);
  }, serves);
  fork.mockImplementationOnce(() => {
    throw new Error("spawn ENOMEM");
  });
  exit();
  await expect.poll(() => logged("was replaced"), { timeout: 10_000 }).toMatchObject([{ worker: 1 }]);
  expect(logged("cannot be started")).toMatchObject([{ worker: 1, reason: "spawn ENOMEM" }]);
});
