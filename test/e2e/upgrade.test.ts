import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, inject, onTestFinished, test } from "vitest";
import type { UncheckedClient } from "../support/clients/unchecked.js";
import { firstRelease, git } from "../support/first-release.js";
import { openOwnPostgres } from "../support/own-postgres.js";
import { skipTest } from "../support/skip.js";
import { openClient } from "./clients.js";
import { until } from "./processes.js";
import { makeSandbox, project, type Service, start, stop } from "./service.js";

const operatorKey = "the-operator-key-of-the-upgrade-test";
/** How many calls of each kind of client there are in each state of the roll-out. */
const callsPerState = 10;

/** Builds a commit in a folder of its own. Its packages are the present ones if its lock file is the same. */
function build(commit: string): string {
  const folder = mkdtempSync(join(tmpdir(), "latchkey release "));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const archive = git("archive", commit);
  if (archive.status !== 0) throw new Error(`git archive ${commit}: ${archive.stderr}`);
  run(folder, "tar", ["-x"], archive.stdout);
  const lockFile = "package-lock.json";
  const isSame = readFileSync(join(folder, lockFile)).equals(readFileSync(join(project, lockFile)));
  if (isSame) symlinkSync(join(project, "node_modules"), join(folder, "node_modules"));
  else run(folder, "npm", ["ci", "--no-audit", "--no-fund"]);
  run(folder, "npm", ["run", "--silent", "build"]);
  return folder;
}

function run(cwd: string, program: string, args: string[], input?: Buffer): void {
  const { status, stderr } = spawnSync(program, args, { cwd, input, maxBuffer: 1024 ** 3 });
  if (status !== 0) throw new Error(`${program} ${args.join(" ")} in ${cwd}: ${stderr}`);
}

/** A replica and its clients, one of each protocol. */
interface Replica {
  readonly version: "release" | "present";
  readonly service: Service;
  readonly clients: readonly UncheckedClient[];
  inFlight: number;
}

/** Clients that call the replicas in rotation, as behind a load balancer, and check each response. */
function startLoad(rotation: ReadonlySet<Replica>, key: string) {
  const failures: string[] = [];
  const calls: Record<string, number> = {};
  let stopped = false;
  let unavailable = 0;
  let turn = 0;

  /**
   * Calls one of the replicas, and expects success. On a machine that is too busy, a replica refuses a call as unavailable,
   * also without an upgrade. Then the call is repeated, and counted by itself. It must have had no effect, or the same one.
   */
  async function call(operation: Parameters<UncheckedClient["call"]>[0], body: Record<string, unknown>) {
    const idempotencyKey = `${operation} ${turn}`;
    for (;;) {
      const replicas = [...rotation];
      const place = turn++;
      const replica = replicas[place % replicas.length] as Replica;
      const client = replica.clients[Math.floor(place / replicas.length) % replica.clients.length] as UncheckedClient;
      replica.inFlight += 1;
      const outcome = await client.call(operation, key, body, { idempotencyKey }).finally(() => {
        replica.inFlight -= 1;
      });
      const kind = `${replica.version} by ${client.name}`;
      calls[kind] = (calls[kind] ?? 0) + 1;
      if (outcome.kind === "success") return outcome.data;
      const isBusy = outcome.kind === "refused" && outcome.code === "service_unavailable";
      if (isBusy && !stopped) unavailable += 1;
      // A deletion whose response was lost is complete.
      else if (operation === "deleteKey" && outcome.kind === "refused" && outcome.code === "key_not_found") return {};
      else {
        failures.push(`${operation} of the ${kind}: ${JSON.stringify(outcome)}`);
        return {};
      }
      await sleep(100);
    }
  }

  const expectCode = (fields: Readonly<Record<string, unknown>>, code: string) => {
    const found = `${fields["code"]}`.replace("CODE_", "").replace("VERIFICATION_", "");
    if (!found.endsWith(code)) failures.push(`verifyKey returned ${fields["code"]} instead of ${code}`);
  };

  /** The life of a key, whose calls reach replicas of both versions. Each change holds on all of them at once. */
  async function live(name: string): Promise<void> {
    for (let round = 0; !stopped; round++) {
      const { keyId, key: secret } = await call("createKey", { name, externalId: `${name} ${round}`, meta: { round } });
      if (keyId === undefined) continue;
      for (let verification = 0; verification < 4; verification++) {
        expectCode(await call("verifyKey", { key: secret }), "VALID");
      }
      await call("updateKey", { keyId, enabled: false });
      for (let verification = 0; verification < 4; verification++) {
        expectCode(await call("verifyKey", { key: secret }), "DISABLED");
      }
      await call("listKeys", { externalId: `${name} ${round}` });
      await call("deleteKey", { keyId });
      expectCode(await call("verifyKey", { key: secret }), "NOT_FOUND");
      await call("getIdentity", { externalId: `${name} ${round}` });
    }
  }

  const lives = ["a", "b", "c", "d"].map(live);
  return {
    failures,
    calls,
    get unavailable() {
      return unavailable;
    },
    async stop() {
      stopped = true;
      await Promise.all(lives);
    },
  };
}

test("the first release and the present version serve on one database while one replaces the other, in both directions", async (context) => {
  const release = firstRelease();
  if ("missing" in release) return skipTest(context, release.missing);
  const folders = { release: build(release.commit), present: project };
  const postgres = await openOwnPostgres();
  onTestFinished(() => postgres.close());

  async function open(version: Replica["version"]): Promise<Replica> {
    const service = await start(makeSandbox(), {
      command: [process.execPath, join(folders[version], "dist/src/main.js")],
      set: { DATABASE_URL: postgres.url, REDIS_URL: inject("redisUrl"), OPERATOR_KEY: operatorKey, LOG_LEVEL: "warn" },
    });
    const kinds = ["HTTP", "gRPC by grpc-js", "Connect"] as const;
    const clients = kinds.map((kind) => openClient(kind, service));
    onTestFinished(() => clients.forEach((client) => void client.close()));
    await until("the service is ready", async () => (await fetch(`${service.httpUrl}/readyz`)).ok || undefined);
    return { version, service, clients, inFlight: 0 };
  }

  const rotation = new Set([await open("release"), await open("release")]);
  const [first] = rotation as Set<Replica>;
  const created = await until("the first workspace is created", async () => {
    const outcome = await first?.clients[0]?.call("createWorkspace", operatorKey, { name: "upgrade" });
    return outcome?.kind === "success" ? outcome.data : undefined;
  });
  const load = startLoad(rotation, `${created["key"]}`);

  /** Waits until each client of each version in rotation has made this many more calls. */
  async function observe(): Promise<void> {
    const before = { ...load.calls };
    const kinds = [...rotation].flatMap(({ version, clients }) => clients.map(({ name }) => `${version} by ${name}`));
    await until(
      "calls of every kind",
      () => kinds.every((kind) => (load.calls[kind] ?? 0) - (before[kind] ?? 0) >= callsPerState) || undefined,
      180_000,
    );
  }

  /** Replaces the replicas one by one: the next one is ready before one leaves the rotation and is stopped. */
  async function roll(version: Replica["version"]): Promise<void> {
    for (const old of [...rotation]) {
      rotation.add(await open(version));
      await observe();
      rotation.delete(old);
      await until("its calls have ended", () => old.inFlight === 0 || undefined);
      expect(await stop(old.service)).toMatchObject({ code: 0 });
    }
    await observe();
  }

  try {
    await observe();
    await roll("present");
    await roll("release");
  } finally {
    await load.stop();
  }
  expect(load.failures).toEqual([]);
  const total = Object.values(load.calls).reduce((sum, calls) => sum + calls, 0);
  expect(load.unavailable, `of ${total} calls`).toBeLessThan(total / 50);
  process.stdout.write(
    `upgrade: ${JSON.stringify(load.calls)}, 0 failed, ${load.unavailable} repeated on a busy machine\n`,
  );
  for (const { service } of rotation) await stop(service);
}, 900_000);
