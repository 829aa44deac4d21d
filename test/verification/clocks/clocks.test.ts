import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { project } from "../../../commands/project.js";
import { openProtocols, type ProtocolClients } from "../../support/clients/all.js";
import type { CallRequest, ProtocolClient } from "../../support/clients/protocol-client.js";
import { createDatabase, operatorKey } from "../../support/harness.js";
import type { OperationName } from "../../support/operations.js";
import type { ResponseData } from "../../support/responses.js";
import { openReplica, type Replica } from "../faults/replica.js";

/** A replica whose time of day may differ from the database's, which is also the test's own. */
interface OffsetReplica {
  readonly aheadMs: number;
  readonly replica: Replica;
  readonly protocols: ProtocolClients;
}

const offsets = { "3 s behind": -3_000, "in step": 0, "3 s ahead": 3_000 } as const;
type Offset = keyof typeof offsets;

const names = Object.keys(offsets) as Offset[];
const pairs = names.flatMap((writer) => names.filter((name) => name !== writer).map((holder) => ({ writer, holder })));

/** The numbers of calls of each test. */
const rounds = 2;
const volleys = 5;
const concurrency = 5;

let database: Awaited<ReturnType<typeof createDatabase>>;
let sql: postgres.Sql;
let home: ResponseData["createWorkspace"];
let folder: string;
const replicas = new Map<Offset, OffsetReplica>();
const at = (offset: Offset) => replicas.get(offset) as OffsetReplica;

beforeAll(async () => {
  // With the default lease time of an installation.
  database = await createDatabase();
  folder = mkdtempSync(join(tmpdir(), "latchkey-clocks-"));
  const installation = {
    dist: join(project, "dist"),
    databaseUrl: database.url,
    redisUrl: inject("redisUrl"),
    operatorKey,
    dataDir: folder,
  };
  for (const name of names) {
    const aheadMs = offsets[name];
    const replica = await openReplica(name, installation, { clock: { aheadMs } });
    const address = (port: number) => `127.0.0.1:${port}`;
    const protocols = openProtocols({
      httpUrl: `http://${address(replica.httpPort)}`,
      grpcAddress: address(replica.grpcPort),
    });
    replicas.set(name, { aheadMs, replica, protocols });
  }
  sql = openSql(database.url, { max: 1 });
  home = await succeed(at("in step").protocols.grpc, "createWorkspace", operatorKey, { name: "home" });
});
afterAll(async () => {
  for (const { replica, protocols } of replicas.values()) {
    protocols.close();
    await replica.close();
  }
  await sql.end();
  await database.drop();
  rmSync(folder, { recursive: true, force: true });
});

/** How often a call is repeated that is refused as unavailable. On a busy machine, a replica may lose its lease for a moment. */
const maxRepetitions = 100;

/** The number of calls that were repeated. */
let repeatedCalls = 0;

/** The outcome of a call that a replica serves, or refuses for another reason than its own availability. */
async function outcomeOf(protocol: ProtocolClient, name: OperationName, credential: string, request: CallRequest) {
  for (let repetitions = 0; ; repetitions++) {
    const outcome = await protocol.call(name, credential, request);
    const isUnavailable = !outcome.ok && outcome.code === "application/service_unavailable";
    if (!isUnavailable || repetitions === maxRepetitions) return outcome;
    if (repetitions === 0) repeatedCalls += 1;
    await sleep(50);
  }
}

async function succeed<Name extends OperationName>(
  protocol: ProtocolClient,
  name: Name,
  credential: string,
  request: CallRequest,
) {
  const outcome = await outcomeOf(protocol, name, credential, request);
  if (!outcome.ok) return expect.fail(`${name} was refused: ${outcome.code}: ${outcome.detail}`);
  return outcome.data as ResponseData[Name];
}

/** Both protocols of a replica. */
const bothProtocols = ({ protocols }: OffsetReplica): ProtocolClient[] => [protocols.http, protocols.grpc];

/** Whether a key is accepted, in both ways: the result of verifyKey for it, and the result of a call with it. */
async function resultsOf(protocol: ProtocolClient, key: string): Promise<string[]> {
  const [verification, call] = await Promise.all([
    succeed(protocol, "verifyKey", home.key, { key }),
    outcomeOf(protocol, "listKeys", key, {}),
  ]);
  return [verification.code, call.ok ? "ok" : call.code];
}

/** A key that the replica has cached. */
async function cachedKey(holder: OffsetReplica, request: CallRequest = {}) {
  const made = await succeed(holder.protocols.http, "createKey", home.key, { scopes: ["keys.read"], ...request });
  for (const protocol of bothProtocols(holder)) expect(await resultsOf(protocol, made.key)).toEqual(["VALID", "ok"]);
  return made;
}

let checkedCalls = 0;

/** Expects the replica to refuse the key as expired, at once and later, whatever its clock shows. */
async function expectExpired(holder: OffsetReplica, key: string): Promise<void> {
  const wrong: string[] = [];
  for (let volley = 0; volley < volleys; volley++) {
    const protocols = Array.from({ length: concurrency }, () => bothProtocols(holder)).flat();
    const codes = (await Promise.all(protocols.map((protocol) => resultsOf(protocol, key)))).flat();
    checkedCalls += codes.length;
    wrong.push(...codes.filter((code) => code !== "EXPIRED" && code !== "authentication/key_expired"));
    await sleep(10);
  }
  expect(wrong).toEqual([]);
}

/** Resolves when the database's clock has passed this time. */
async function passedInDatabase(time: number): Promise<void> {
  for (let left = 1; left > 0; ) {
    const [row] = await sql<{ left: number }[]>`
      select ${time} - extract(epoch from clock_timestamp())::float8 * 1000 as left`;
    left = row?.left ?? 0;
    if (left > 0) await sleep(left);
  }
}

describe.each(pairs)("a replica $holder applies, as soon as one $writer has acknowledged it,", (pair) => {
  const [writer, holder] = [() => at(pair.writer), () => at(pair.holder)];

  it("a reroll without a grace period", async () => {
    for (let round = 0; round < rounds; round++) {
      const { key, keyId } = await cachedKey(holder());
      const protocol = bothProtocols(writer())[round % 2] as ProtocolClient;
      const successor = await succeed(protocol, "rerollKey", home.key, { keyId, expiration: 0 });
      await expectExpired(holder(), key);
      expect(await resultsOf(holder().protocols.grpc, successor.key)).toEqual(["VALID", "ok"]);
    }
  });

  it("an update to an expiry that has passed", async () => {
    for (let round = 0; round < rounds; round++) {
      const { key, keyId } = await cachedKey(holder());
      const protocol = bothProtocols(writer())[round % 2] as ProtocolClient;
      // A replica refuses an expiry that has passed by its own clock. If that clock is behind, the expiry may have
      // passed by the database's.
      const expires = Date.now() + writer().aheadMs + 100;
      await succeed(protocol, "updateKey", home.key, { keyId, expires });
      await passedInDatabase(expires);
      await expectExpired(holder(), key);
      await succeed(protocol, "updateKey", home.key, { keyId, expires: Date.now() + 3_600_000 });
      for (const each of bothProtocols(holder())) expect(await resultsOf(each, key)).toEqual(["VALID", "ok"]);
    }
  });
});

describe.each(names)("on a replica whose clock is %s", (name) => {
  it("a key is accepted until its expiry by the database's clock, and in no call that starts later", async () => {
    const holder = at(name);
    const expires = Date.now() + 3_000 + Math.max(0, holder.aheadMs);
    const { key } = await cachedKey(holder, { expires });
    const results: { left: number; code: string }[] = [];
    for (let left = 1; left > -500; ) {
      left = expires - Date.now();
      const repeatedBefore = repeatedCalls;
      const codes = await Promise.all(bothProtocols(holder).map((protocol) => resultsOf(protocol, key)));
      // A repeated call began later than `left` says, so its result proves nothing.
      if (repeatedCalls === repeatedBefore) results.push(...codes.flat().map((code) => ({ left, code })));
      if (left > 300) await sleep(50);
    }
    checkedCalls += results.length;
    const accepted = results.filter(({ code }) => code === "VALID" || code === "ok");
    expect(accepted.filter(({ left }) => left <= 0)).toEqual([]);
    expect(accepted.length).toBeGreaterThan(20);
    const refused = results.filter(({ code }) => code === "EXPIRED" || code === "authentication/key_expired");
    expect(accepted.length + refused.length).toBe(results.length);
    expect(refused.length).toBeGreaterThan(20);
    // A call may be refused too early only within a renewal and its round trip of the expiry.
    expect(refused.filter(({ left }) => left > 1_000)).toEqual([]);
  });
});

it("and more than a thousand calls were checked, of which few had to be repeated", () => {
  expect(checkedCalls).toBeGreaterThan(1_000);
  expect(repeatedCalls).toBeLessThan(checkedCalls / 10);
});
