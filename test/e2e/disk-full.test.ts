import { spawnSync } from "node:child_process";
import { chmodSync, closeSync, mkdirSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { expect, onTestFinished, type TestContext, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { createProtobufClient, isLatchkeyError } from "../../src/client/protobuf.js";
import { skipTest } from "../support/skip.js";
import { until } from "./processes.js";
import {
  call,
  embeddedUrl,
  expectUserError,
  launch,
  makeSandbox,
  readSecret,
  type Sandbox,
  type Service,
  start,
  waitForExit,
} from "./service.js";

/** The size of a new installation, and a little more. */
const diskMb = 72;

test("while the disk is full, changes are refused with a 503 that names the cause, all other calls work, and the service recovers when there is space", async (ctx) => {
  const sandbox = makeSmallSandbox(ctx);
  const service = await start(sandbox);
  const key = readSecret(sandbox.firstKeyFile);
  const overGrpc = createProtobufClient({
    transport: createGrpcTransport({ baseUrl: `http://${service.grpcAddress}` }),
    key,
  });
  const acknowledged: string[] = [];
  const disk = fillDisk(sandbox);

  const refusals = await writeUntilRefused(service, key, acknowledged, 50);
  expect(new Set(refusals)).toEqual(new Set([noSpaceDetail]));
  const error = await overGrpc.identities.createIdentity(bulky("grpc")).catch((error: unknown) => error);
  expect(error).toSatisfy((error) => isLatchkeyError(error, "service_unavailable"));
  expect(String(error)).toContain("is out of disk space");
  expect(await call(service, "/v2/keys.verifyKey", key, { key })).toMatchObject({ status: 200 });
  expect(await call(service, "/v2/keys.listKeys", key)).toMatchObject({ status: 200 });
  expect((await fetch(`${service.httpUrl}/readyz`)).status).toBe(200);
  expect(linesOf(service, "is out of disk space"), "logged once").toHaveLength(1);

  disk.release();
  await expectToWrite(service, key, acknowledged);
  await expectAllThere(service, key, acknowledged);
  // Logged when nothing has failed for some seconds, and a statement succeeds again.
  await until("the end of the outage is logged", async () => {
    await expectToWrite(service, key, acknowledged);
    return linesOf(service, "the database works again").length === 1 || undefined;
  });
});

test("a PostgreSQL that exits because of a full disk is restarted when there is space, and every acknowledged write exists", async (ctx) => {
  const sandbox = makeSmallSandbox(ctx);
  const service = await start(sandbox);
  const key = readSecret(sandbox.firstKeyFile);
  const acknowledged: string[] = [];
  await expectToWrite(service, key, acknowledged);
  const disk = fillDisk(sandbox);

  await exhaustWal(sandbox);
  await until("PostgreSQL has exited", () => linesOf(service, "the embedded PostgreSQL exited")[0]);
  await until("the restart fails", () => linesOf(service, "the embedded PostgreSQL cannot be started")[0]);
  expect((await write(service, key, "too-late")).status).toBe(503);
  expect((await fetch(`${service.httpUrl}/readyz`)).status).toBe(503);
  expect((await fetch(`${service.httpUrl}/livez`)).status).toBe(200);

  disk.release();
  await until(
    "the service is ready",
    async () => (await fetch(`${service.httpUrl}/readyz`)).status === 200 || undefined,
  );
  await expectToWrite(service, key, acknowledged);
  await expectAllThere(service, key, acknowledged);
  const logLines = linesOf(service, "the embedded PostgreSQL");
  expect(logLines.filter((line) => line.includes("exited unexpectedly"))).toHaveLength(1);
  expect(logLines.length, logLines.join("\n")).toBeLessThan(6);
});

test("a full disk at the first start is a readable error", async (ctx) => {
  const sandbox = makeSmallSandbox(ctx);
  fillDisk(sandbox);
  expectUserError(await waitForExit(launch(sandbox)), "DATA_DIR", "No space left on device");
});

test("a read-only DATA_DIR is a readable error", async (ctx) => {
  const sandbox = makeSmallSandbox(ctx);
  mount(ctx, "-o", "remount,ro", sandbox.dataDir);
  expectUserError(await waitForExit(launch(sandbox)), "DATA_DIR", sandbox.dataDir, /read-only/i);
});

const noSpaceDetail = "The service's database is out of disk space. Retry after the delay in `Retry-After`.";

/** A sandbox whose data is on its own small disk. */
function makeSmallSandbox(ctx: TestContext): Sandbox {
  const sandbox = makeSandbox();
  mkdirSync(sandbox.dataDir);
  mount(ctx, "-t", "tmpfs", "-o", `size=${diskMb}m`, "tmpfs", sandbox.dataDir);
  // Runs before the sandbox is removed, when no process of the service remains.
  onTestFinished(() => void spawnSync("umount", [sandbox.dataDir]));
  chmodSync(sandbox.dataDir, 0o700);
  return sandbox;
}

function mount(ctx: TestContext, ...args: string[]): void {
  const { status, stderr, error } = spawnSync("mount", args, { encoding: "utf8" });
  if (status !== 0) skipTest(ctx, `this machine cannot mount a small disk: ${error?.message ?? stderr.trim()}`);
}

/** Fills the disk. */
function fillDisk({ dataDir }: Sandbox): { release(): void } {
  const ballast = join(dataDir, "ballast");
  const file = openSync(ballast, "w");
  try {
    for (const bytes of [Buffer.alloc(1024 * 1024), Buffer.alloc(4096)]) writeUntilFull(file, bytes);
  } finally {
    closeSync(file);
  }
  return { release: () => rmSync(ballast) };
}

function writeUntilFull(file: number, bytes: Buffer): void {
  try {
    while (writeSync(file, bytes) > 0);
  } catch (error) {
    expect(error).toMatchObject({ code: "ENOSPC" });
  }
}

/** Not compressible, so that a few of them fill a page. */
const bulky = (externalId: string) => ({
  externalId,
  meta: { text: Array.from({ length: 300 }, () => Math.random().toString(36)).join("") },
});

function write(service: Service, key: string, externalId: string) {
  return call(service, "/v2/identities.createIdentity", key, bulky(externalId));
}

/** Writes until this many were refused in a row; returns the details of the refusals. */
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

/** Makes PostgreSQL start a new WAL segment. There is no space for it, so PostgreSQL exits. */
async function exhaustWal({ dataDir }: Sandbox): Promise<void> {
  const sql = openSql(embeddedUrl(dataDir), { max: 1, onnotice: () => {} });
  onTestFinished(() => sql.end({ timeout: 1 }));
  await until("PostgreSQL exits", async () => {
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
