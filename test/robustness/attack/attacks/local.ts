import { chmodSync, mkdirSync, mkdtempSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Launched, launchNode } from "../../../../commands/processes.js";
import { descendantsOf } from "../../../e2e/processes.js";
import { type Attack, outcomeOf } from "../attack.js";
import { portsOf } from "../listening.js";
import type { AttackContext } from "../site.js";

/** A service with embedded backends, started without configuration as a user would. */
interface OwnService extends Launched {
  readonly dataDir: string;
  stdout(): string;
  stderr(): string;
  /** Resolves to whether it has started. False if it ended, or did not start in time. */
  readonly ready: Promise<boolean>;
}

const startTimeoutMs = 60_000;

function startOwn(context: AttackContext, env: NodeJS.ProcessEnv = {}): OwnService {
  const dataDir = env["DATA_DIR"] ?? join(mkdtempSync(join(context.folder, "own-")), "data");
  const launched = launchNode([context.program], {
    PATH: process.env["PATH"],
    HTTP_PORT: "0",
    GRPC_PORT: "0",
    ...env,
    DATA_DIR: dataDir,
  });
  context.addCleanup(() => launched.stop(10_000));
  let stdout = "";
  let stderr = "";
  launched.child.stderr?.setEncoding("utf8").on("data", (text) => {
    stderr += text;
  });
  const ready = new Promise<boolean>((resolve) => {
    launched.child.stdout?.setEncoding("utf8").on("data", (text) => {
      stdout += text;
      if (stdout.includes("Ctrl-C stops it.")) resolve(true);
    });
    void launched.ended.then(() => resolve(false));
    setTimeout(() => resolve(false), startTimeoutMs).unref();
  });
  return { ...launched, dataDir, stdout: () => stdout, stderr: () => stderr, ready };
}

export const localPorts: Attack = {
  name: "local-ports",
  title: "another user of the machine can reach the embedded backends",
  async run(context) {
    const service = startOwn(context);
    if (!(await service.ready)) throw new Error(`the service did not start: ${service.stderr()}`);
    const pid = service.child.pid ?? 0;
    const pids = [pid, ...descendantsOf(pid).map((one) => one.pid)];
    const own = [...service.stdout().matchAll(/127\.0\.0\.1:(\d+)/g)].map(([, port]) => Number(port));
    const others = [...new Set(portsOf(pids))].filter((port) => !own.includes(port));
    const mode = statSync(service.dataDir).mode & 0o777;
    const owners = pids.map((one) => ownerOf(one));
    const byNobody = process.getuid?.() === 0 && owners.includes(65_534);
    const users = [...new Set(owners)].join(", ");
    return outcomeOf(
      {
        "no further TCP ports": others.length === 0,
        "folder is private": mode === 0o700,
        "backends do not run as nobody": !byNobody,
      },
      `${others.length} TCP ports in addition to HTTP and gRPC; folder ${mode.toString(8)}; process users: ${users}`,
    );
  },
};

function ownerOf(pid: number): number {
  try {
    return Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
  } catch {
    return -1;
  }
}

export const plantedCredential: Attack = {
  name: "planted-credential",
  title: "other users who can write to the data folder plant an operator credential",
  async run(context) {
    const started: string[] = [];
    const cases = { "an open folder": 0o777, "a short credential": 0o700, "a credential that others can write": 0o700 };
    for (const [name, mode] of Object.entries(cases)) {
      const dataDir = join(mkdtempSync(join(context.folder, "planted-")), "data");
      mkdirSync(dataDir);
      chmodSync(dataDir, mode);
      const file = join(dataDir, "operator.key");
      writeFileSync(file, name === "a short credential" ? "x" : "operator-credential-that-was-planted", {
        mode: 0o600,
      });
      if (name === "a credential that others can write") chmodSync(file, 0o666);
      const service = startOwn(context, { DATA_DIR: dataDir });
      if (await service.ready) started.push(name);
      await service.stop(10_000);
    }
    return outcomeOf(
      { "all refused": started.length === 0 },
      started.length === 0 ? "all refused" : `started with ${started.join(", ")}`,
    );
  },
};

export const secretInOutput: Attack = {
  name: "secret-in-output",
  title: "the first key is printed and ends up in collected output",
  async run(context) {
    const service = startOwn(context);
    if (!(await service.ready)) throw new Error(`the service did not start: ${service.stderr()}`);
    const key = readFileSync(join(service.dataDir, "first.key"), "utf8").trim();
    const shown = (service.stdout() + service.stderr()).includes(key);
    return outcomeOf(
      { "key not printed": !shown },
      shown ? "the key is in the output" : "the output names only the file",
    );
  },
};

export const impossibleFolder: Attack = {
  name: "impossible-folder",
  title: "a DATA_DIR that cannot be created blocks the start",
  async run(context) {
    const service = startOwn(context, { DATA_DIR: "/proc/latchkey/data" });
    const ended = await Promise.race([service.ended.then(() => true), sleep(20_000, false)]);
    const left = descendantsOf(service.child.pid ?? 0).length;
    return outcomeOf(
      {
        exited: ended,
        explained: service.stderr().includes("DATA_DIR") || service.stdout().includes("DATA_DIR"),
        "no processes left": left === 0,
      },
      ended ? "the service exited at once with an error message" : "the service still runs after 20 s",
    );
  },
};
