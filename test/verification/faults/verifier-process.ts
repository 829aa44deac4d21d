import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { type Launched, launchNode } from "../../../commands/processes.js";
import { project } from "../../../commands/project.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import type { OtherClock, Replica } from "./replica.js";

/** A process with the library that verifies keys itself. It reaches each replica through its own proxy. */
export interface VerifierProcess {
  readonly name: string;
  readonly links: readonly BackendProxy[];
  /** Sets what it verifies: with the keys of which callers, which keys. */
  watch(watched: Watched): void;
  freeze(): void;
  thaw(): void;
  /** Freezes it, and stops its monotonic clock until it is resumed. Its time of day continues. */
  suspend(): Promise<void>;
  resume(): void;
  kill(): Promise<void>;
  /** Starts it again, with the same clocks unless others are given. */
  start(newClock?: OtherClock): Promise<void>;
  crashes(): number;
  close(): Promise<void>;
}

export interface Watched {
  /** The secrets of the callers. */
  readonly callers: readonly string[];
  readonly keys: readonly WatchedKey[];
}

export interface WatchedKey {
  readonly id: number;
  readonly caller: string;
  readonly secret: string;
  readonly permissions: string | undefined;
}

/** Calls with the same result. Times are on the machine's monotonic clock, in milliseconds. */
export interface ReportedGroup {
  readonly id: number;
  readonly code: string;
  readonly first: readonly [begin: number, end: number];
  readonly last: readonly [begin: number, end: number];
  readonly count: number;
  readonly isLocal: boolean;
}

interface Report {
  readonly groups?: readonly ReportedGroup[];
}

export interface VerifierOptions {
  /** The folder of the built library. */
  readonly dist: string;
  readonly replicas: readonly Replica[];
  /** Verifications per second. */
  readonly rate: number;
  readonly clock: OtherClock;
  readonly onGroups: (groups: readonly ReportedGroup[]) => void;
}

/** A process has stopped within this time after SIGSTOP. */
const freezeMs = 5;

export async function openVerifierProcess(name: string, options: VerifierOptions): Promise<VerifierProcess> {
  const { dist, replicas, rate, onGroups } = options;
  let { clock } = options;
  const links = await Promise.all(replicas.map(({ grpcPort }) => openProxy(`http://127.0.0.1:${grpcPort}`)));
  const pausesFile = join(mkdtempSync(join(tmpdir(), "latchkey-verifier-")), "pauses");
  writeFileSync(pausesFile, "0");
  let running: Launched | undefined;
  let watched: Watched = { callers: [], keys: [] };
  let crashes = 0;
  let totalPauseMs = 0;
  let pausedAt = 0;

  async function start(newClock = clock): Promise<void> {
    clock = newClock;
    const preloaded = ["--import", pathToFileURL(join(project, "test/verification/clocks/other-clock.mjs")).href];
    const host = join(project, "test/verification/faults/verifier-host.mjs");
    const launched = launchNode([...preloaded, host], {
      CLOCK_AHEAD_MS: `${clock.aheadMs ?? 0}`,
      CLOCK_SPEED: `${clock.speed ?? 1}`,
      PAUSES_FILE: pausesFile,
      WALL_CONTINUES: "1",
      PATH: process.env["PATH"],
      VERIFIER_MODULE: join(dist, "src/verifier/verifier.js"),
      ADDRESSES: JSON.stringify(links.map(({ url }) => new URL(url).origin)),
      RATE: `${rate}`,
    });
    running = launched;
    let log = "";
    launched.child.stderr?.setEncoding("utf8").on("data", (text) => {
      log = (log + text).slice(-4_000);
    });
    launched.child.on("message", ({ groups = [] }: Report) => onGroups(groups));
    void launched.ended.then(() => {
      if (running !== launched) return;
      crashes++;
      process.stderr.write(`${name} ended unexpectedly:\n${log}\n`);
    });
    await Promise.race([once(launched.child, "message"), launched.ended]);
    send();
  }

  function send(): void {
    if (running?.child.connected) running.child.send(watched, () => {}); // the process may end at any moment
  }

  const verifier: VerifierProcess = {
    name,
    links,
    watch(next) {
      watched = next;
      send();
    },
    freeze: () => running?.freeze(),
    thaw: () => running?.thaw(),
    async suspend() {
      running?.freeze();
      // Wait until it has stopped, so that the pause which its clock skips is never longer than the real one.
      await sleep(freezeMs);
      pausedAt = performance.now();
    },
    resume() {
      totalPauseMs += performance.now() - pausedAt;
      writeFileSync(pausesFile, `${totalPauseMs}`);
      running?.thaw();
    },
    async kill() {
      const launched = running;
      running = undefined;
      await launched?.kill();
    },
    start,
    crashes: () => crashes,
    async close() {
      await verifier.kill();
      await Promise.all(links.map((link) => link.close()));
      rmSync(dirname(pausesFile), { recursive: true, force: true });
    },
  };
  try {
    await start();
    return verifier;
  } catch (error) {
    await verifier.close();
    throw error;
  }
}
