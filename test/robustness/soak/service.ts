import { once } from "node:events";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { launchNode, readBanner } from "../../../commands/processes.js";
import { project } from "../../../commands/project.js";
import { readSamples, total } from "../../support/metric-samples.js";

/** A measurement of the service's process after a garbage collection. */
export interface ProcessSample {
  /** Without compiled code. */
  readonly heapBytes: number;
  readonly codeBytes: number;
  readonly rssBytes: number;
  /** External memory, array buffers included. */
  readonly externalBytes: number;
  /** The active resources of the event loop, by kind: sockets, timers and the like. */
  readonly resources: Readonly<Record<string, number>>;
  /** Event listeners of the process object. */
  readonly listeners: number;
}

/** The built service in a separate process whose memory can be sampled. */
export interface SoakedService {
  readonly httpUrl: string;
  readonly grpcAddress: string;
  readonly operatorKey: string;
  sample(): Promise<ProcessSample>;
  /** The sum of a metric over all labels that are not given. */
  readMetric(name: string, labels?: Readonly<Record<string, string>>): Promise<number>;
  /** Whether it has exited unexpectedly. */
  ended(): boolean;
  /** The last part of its log, without the lines of calls. */
  log(): string;
  stop(): Promise<void>;
}

/** A deliberate leak, to test the soak itself. */
export interface Leak {
  /** Bytes for every 100 requests on the HTTP port. 0: no leak. */
  readonly bytes: number;
  /** Whether it leaks Buffers, outside of the heap. */
  readonly inBuffers: boolean;
}

const operatorKey = "operator-credential-of-the-soak";

/** Starts the service with a small cache that is soon full. A cache that still fills would look like a leak. */
export async function startSoaked(databaseUrl: string, redisUrl: string, leak: Leak): Promise<SoakedService> {
  const preload = (name: string) => ["--import", pathToFileURL(join(project, "test/robustness/soak", name)).href];
  const program = [...preload("probe.mjs"), ...(leak.bytes > 0 ? preload("leak.mjs") : [])];
  const launched = launchNode([...program, join(project, "dist/src/main.js")], {
    PATH: process.env["PATH"],
    DATABASE_URL: databaseUrl,
    REDIS_URL: redisUrl,
    OPERATOR_KEY: operatorKey,
    CACHE_MB: "8",
    HTTP_PORT: "0",
    GRPC_PORT: "0",
    METRICS_PORT: "0",
    LEAK_BYTES: `${leak.bytes}`,
    LEAK_IN: leak.inBuffers ? "buffers" : "heap",
  });
  let log = "";
  let hasEnded = false;
  void launched.ended.then(() => {
    hasEnded = true;
  });
  launched.child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    const lines = text.split("\n").filter((line) => line !== "" && !line.includes('"msg":"call"'));
    log = (log + lines.map((line) => `${line}\n`).join("")).slice(-4_000);
  });
  const banner = await readBanner(launched, () => log);
  const find = (label: string) => new RegExp(`^ +${label} +(\\S+)$`, "m").exec(banner)?.[1] ?? "";
  const metricsUrl = find("Metrics");
  return {
    httpUrl: find("HTTP/JSON, Connect"),
    grpcAddress: find("gRPC"),
    operatorKey,
    async sample() {
      launched.child.send("sample");
      const [sample] = await once(launched.child, "message");
      return sample as ProcessSample;
    },
    readMetric: async (name, labels) => total(await readSamples({ metricsUrl }), `latchkey_${name}`, labels),
    ended: () => hasEnded,
    log: () => log,
    stop: () => launched.stop(15_000),
  };
}
