import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { project } from "../../../commands/project.js";
import type { Answers } from "../../contract/answers.js";
import type { OperationName } from "../../contract/operations.js";
import { openProtocols, type ProtocolClients } from "../../support/clients/all.js";
import type { CallRequest, ProtocolClient } from "../../support/clients/protocol-client.js";
import { createDatabase, operatorKey } from "../../support/harness.js";
import { openReplica, type Replica } from "../../verification/faults/replica.js";

/** A replica whose time of day is not that of the database, which is the test's own. */
interface Elsewhere {
  readonly aheadMs: number;
  readonly replica: Replica;
  readonly protocols: ProtocolClients;
}

const places = { "3 s behind": -3_000, "in step": 0, "3 s ahead": 3_000 } as const;
type Place = keyof typeof places;

const names = Object.keys(places) as Place[];
const pairs = names.flatMap((writer) => names.filter((name) => name !== writer).map((holder) => ({ writer, holder })));

/** What each test makes of calls; together they are many. */
const rounds = 2;
const volleys = 5;
const atOnce = 5;

let database: Awaited<ReturnType<typeof createDatabase>>;
let sql: postgres.Sql;
let home: Answers["createWorkspace"];
let folder: string;
const replicas = new Map<Place, Elsewhere>();
const at = (place: Place) => replicas.get(place) as Elsewhere;

beforeAll(async () => {
  // With the lease that whoever installs the service has.
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
    const aheadMs = places[name];
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

async function succeed<Name extends OperationName>(
  protocol: ProtocolClient,
  name: Name,
  credential: string,
  request: CallRequest,
) {
  const outcome = await protocol.call(name, credential, request);
  if (!outcome.ok) return expect.fail(`${name} was refused: ${outcome.code}: ${outcome.detail}`);
  return outcome.data as Answers[Name];
}

/** Both protocols of a replica. */
const bothProtocols = ({ protocols }: Elsewhere): ProtocolClient[] => [protocols.http, protocols.grpc];

/** Whether a key is accepted, asked in both ways: what another key is told about it, and what it may do itself. */
async function answers(protocol: ProtocolClient, key: string): Promise<string[]> {
  const [verdict, call] = await Promise.all([
    succeed(protocol, "verifyKey", home.key, { key }),
    protocol.call("listKeys", key, {}),
  ]);
  return [verdict.code, call.ok ? "ok" : call.code];
}

/** A key that the replica holds. */
async function heldKey(holder: Elsewhere, request: CallRequest = {}) {
  const made = await succeed(holder.protocols.http, "createKey", home.key, { scopes: ["keys.read"], ...request });
  for (const protocol of bothProtocols(holder)) expect(await answers(protocol, made.key)).toEqual(["VALID", "ok"]);
  return made;
}

let judged = 0;

/** The replica refuses the key as expired, at once and later, whatever its clock says. */
async function expectOver(holder: Elsewhere, key: string): Promise<void> {
  const wrong: string[] = [];
  for (let volley = 0; volley < volleys; volley++) {
    const protocols = Array.from({ length: atOnce }, () => bothProtocols(holder)).flat();
    const told = (await Promise.all(protocols.map((protocol) => answers(protocol, key)))).flat();
    judged += told.length;
    wrong.push(...told.filter((answer) => answer !== "EXPIRED" && answer !== "authentication/key_expired"));
    await sleep(10);
  }
  expect(wrong).toEqual([]);
}

/** Until the database's clock has passed this. */
async function passedInDatabase(time: number): Promise<void> {
  for (let left = 1; left > 0; ) {
    const [row] = await sql<{ left: number }[]>`
      select ${time} - extract(epoch from clock_timestamp())::float8 * 1000 as left`;
    left = row?.left ?? 0;
    if (left > 0) await sleep(left);
  }
}

describe.each(pairs)("a replica that is $holder obeys, as soon as one that is $writer has answered", (pair) => {
  const [writer, holder] = [() => at(pair.writer), () => at(pair.holder)];

  it("a reroll without a grace period", async () => {
    for (let round = 0; round < rounds; round++) {
      const { key, keyId } = await heldKey(holder());
      const protocol = bothProtocols(writer())[round % 2] as ProtocolClient;
      const successor = await succeed(protocol, "rerollKey", home.key, { keyId, expiration: 0 });
      await expectOver(holder(), key);
      expect(await answers(holder().protocols.grpc, successor.key)).toEqual(["VALID", "ok"]);
    }
  });

  it("an update to an expiry that has passed", async () => {
    for (let round = 0; round < rounds; round++) {
      const { key, keyId } = await heldKey(holder());
      const protocol = bothProtocols(writer())[round % 2] as ProtocolClient;
      // Nobody accepts an expiry that has passed by its own clock; where that is behind, it may have by the database's.
      const expires = Date.now() + writer().aheadMs + 100;
      await succeed(protocol, "updateKey", home.key, { keyId, expires });
      await passedInDatabase(expires);
      await expectOver(holder(), key);
      await succeed(protocol, "updateKey", home.key, { keyId, expires: Date.now() + 3_600_000 });
      for (const each of bothProtocols(holder())) expect(await answers(each, key)).toEqual(["VALID", "ok"]);
    }
  });
});

describe.each(names)("on a replica that is %s", (name) => {
  it("no call is accepted that starts when the key's expiry has passed by the database's clock, and earlier ones are", async () => {
    const holder = at(name);
    const expires = Date.now() + 1_000 + Math.max(0, holder.aheadMs);
    const { key } = await heldKey(holder, { expires });
    const told: { left: number; code: string }[] = [];
    for (let left = 1; left > -500; ) {
      left = expires - Date.now();
      const given = await Promise.all(bothProtocols(holder).map((protocol) => answers(protocol, key)));
      told.push(...given.flat().map((code) => ({ left, code })));
      if (left > 300) await sleep(50);
    }
    judged += told.length;
    const accepted = told.filter(({ code }) => code === "VALID" || code === "ok");
    expect(accepted.filter(({ left }) => left <= 0)).toEqual([]);
    expect(accepted.length).toBeGreaterThan(20);
    const refused = told.filter(({ code }) => code === "EXPIRED" || code === "authentication/key_expired");
    expect(accepted.length + refused.length).toBe(told.length);
    expect(refused.length).toBeGreaterThan(20);
    // Refused too early is only what is within a renewal and its round trip of the end.
    expect(refused.filter(({ left }) => left > 1_000)).toEqual([]);
  });
});

it("and that was seen in more than a thousand calls", () => {
  expect(judged).toBeGreaterThan(1_000);
});
