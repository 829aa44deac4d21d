import { spawnSync } from "node:child_process";
import { chmodSync, closeSync, mkdirSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { expect, onTestFinished, type TestContext, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { createLatchkeyClient, isLatchkeyError } from "../../src/client/client.js";
import { leaveOut } from "../support/skip.js";
import { until } from "./processes.js";
import {
  call,
  embeddedUrl,
  ending,
  expectReadableFailure,
  launch,
  makePlace,
  type Place,
  readSecret,
  type Service,
  start,
} from "./service.js";

/** What a new installation takes, and a little more. */
const roomMb = 72;

test("while the disk is full, changes are refused with 503 that says so, all else goes on, and room is enough to recover", async (ctx) => {
  const place = makeSmallPlace(ctx);
  const service = await start(place);
  const key = readSecret(place.firstKeyFile);
  const overGrpc = createLatchkeyClient({
    transport: createGrpcTransport({ baseUrl: `http://${service.grpcAddress}` }),
    key,
  });
  const acknowledged: string[] = [];
  const disk = fillDisk(place);

  const refusals = await writeUntilRefused(service, key, acknowledged, 50);
  expect(new Set(refusals)).toEqual(new Set([noRoom]));
  const told = await overGrpc.identities.createIdentity(bulky("grpc")).catch((error: unknown) => error);
  expect(told).toSatisfy((error) => isLatchkeyError(error, "service_unavailable"));
  expect(String(told)).toContain("has no disk space left");
  expect(await call(service, "/v2/keys.verifyKey", key, { key })).toMatchObject({ status: 200 });
  expect(await call(service, "/v2/keys.listKeys", key)).toMatchObject({ status: 200 });
  expect((await fetch(`${service.httpUrl}/readyz`)).status).toBe(200);
  expect(linesOf(service, "has no disk space left"), "said once").toHaveLength(1);

  disk.release();
  await expectToWrite(service, key, acknowledged);
  await expectAllThere(service, key, acknowledged);
  // Said when nothing has failed for some seconds, and a statement succeeds that had not.
  await until("it says that this is over", async () => {
    await expectToWrite(service, key, acknowledged);
    return linesOf(service, "the database is well again").length === 1 || undefined;
  });
});

test("a PostgreSQL that ends for want of room is started again when there is room, and every acknowledged write is there", async (ctx) => {
  const place = makeSmallPlace(ctx);
  const service = await start(place);
  const key = readSecret(place.firstKeyFile);
  const acknowledged: string[] = [];
  await expectToWrite(service, key, acknowledged);
  const disk = fillDisk(place);

  await useUpTheLog(place);
  await until("PostgreSQL has ended", () => linesOf(service, "the embedded PostgreSQL has ended")[0]);
  await until("it cannot be started", () => linesOf(service, "the embedded PostgreSQL cannot be started")[0]);
  expect((await write(service, key, "too-late")).status).toBe(503);
  expect((await fetch(`${service.httpUrl}/readyz`)).status).toBe(503);
  expect((await fetch(`${service.httpUrl}/livez`)).status).toBe(200);

  disk.release();
  await until("it is ready", async () => (await fetch(`${service.httpUrl}/readyz`)).status === 200 || undefined);
  await expectToWrite(service, key, acknowledged);
  await expectAllThere(service, key, acknowledged);
  const said = linesOf(service, "the embedded PostgreSQL");
  expect(said.filter((line) => line.includes("has ended"))).toHaveLength(1);
  expect(said.length, said.join("\n")).toBeLessThan(6);
});

test("a disk that is full at the first start is told in a sentence", async (ctx) => {
  const place = makeSmallPlace(ctx);
  fillDisk(place);
  expectReadableFailure(await ending(launch(place)), "DATA_DIR", "No space left on device");
});

test("a DATA_DIR that can only be read is told in a sentence", async (ctx) => {
  const place = makeSmallPlace(ctx);
  mount(ctx, "-o", "remount,ro", place.dataDir);
  expectReadableFailure(await ending(launch(place)), "DATA_DIR", place.dataDir, /read-only/i);
});

const noRoom = "The service's database has no disk space left. Retry after the delay in `Retry-After`.";

/** A place whose data is on a small disk of its own. */
function makeSmallPlace(ctx: TestContext): Place {
  const place = makePlace();
  mkdirSync(place.dataDir);
  mount(ctx, "-t", "tmpfs", "-o", `size=${roomMb}m`, "tmpfs", place.dataDir);
  // The place is removed after this, and nothing of the service is left by then.
  onTestFinished(() => void spawnSync("umount", [place.dataDir]));
  chmodSync(place.dataDir, 0o700);
  return place;
}

function mount(ctx: TestContext, ...args: string[]): void {
  const { status, stderr, error } = spawnSync("mount", args, { encoding: "utf8" });
  if (status !== 0) leaveOut(ctx, `a small disk cannot be mounted here: ${error?.message ?? stderr.trim()}`);
}

/** Leaves no room on the disk. */
function fillDisk({ dataDir }: Place): { release(): void } {
  const ballast = join(dataDir, "ballast");
  const file = openSync(ballast, "w");
  try {
    for (const bytes of [Buffer.alloc(1024 * 1024), Buffer.alloc(4096)]) writeToTheEnd(file, bytes);
  } finally {
    closeSync(file);
  }
  return { release: () => rmSync(ballast) };
}

function writeToTheEnd(file: number, bytes: Buffer): void {
  try {
    while (writeSync(file, bytes) > 0);
  } catch (error) {
    expect(error).toMatchObject({ code: "ENOSPC" });
  }
}

/** Does not compress, so that a few of them fill a page. */
const bulky = (externalId: string) => ({
  externalId,
  meta: { text: Array.from({ length: 300 }, () => Math.random().toString(36)).join("") },
});

async function write(service: Service, key: string, externalId: string) {
  const response = await fetch(`${service.httpUrl}/v2/identities.createIdentity`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify(bulky(externalId)),
  });
  const { error } = (await response.json()) as { error?: { detail: string } };
  return { status: response.status, detail: error?.detail };
}

/** Writes until so many were refused in a row; tells what those were told. */
async function writeUntilRefused(service: Service, key: string, acknowledged: string[], times: number) {
  const refusals: (string | undefined)[] = [];
  for (let number = 0; refusals.length < times && number < 2_000; number++) {
    const externalId = `full-${number}`;
    const { status, detail } = await write(service, key, externalId);
    if (status === 200) acknowledged.push(externalId);
    if (status === 200) refusals.length = 0;
    else refusals.push(detail);
  }
  return refusals;
}

async function expectToWrite(service: Service, key: string, acknowledged: string[]): Promise<void> {
  const externalId = `good-${acknowledged.length}`;
  await until("a change is accepted", async () => (await write(service, key, externalId)).status === 200 || undefined);
  acknowledged.push(externalId);
}

async function expectAllThere(service: Service, key: string, acknowledged: readonly string[]): Promise<void> {
  for (const externalId of acknowledged) {
    const { data } = await call(service, "/v2/identities.getIdentity", key, { externalId });
    expect(data, externalId).toMatchObject({ externalId });
  }
}

/** Makes PostgreSQL begin a new piece of its write-ahead log, for which there is no room: it gives up. */
async function useUpTheLog({ dataDir }: Place): Promise<void> {
  const sql = openSql(embeddedUrl(dataDir), { max: 1, onnotice: () => {} });
  onTestFinished(() => sql.end({ timeout: 1 }));
  await until("PostgreSQL gives up", async () => {
    try {
      await sql`select pg_switch_wal()`;
      await sql`update cluster_state set lease_ms = lease_ms`;
      return undefined;
    } catch {
      return true;
    }
  });
}

function linesOf(service: Service, text: string): string[] {
  return service
    .stderr()
    .split("\n")
    .filter((line) => line.includes(text) && !line.includes('"msg":"call"'));
}
