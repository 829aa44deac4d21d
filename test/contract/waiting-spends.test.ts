import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { spenderSettings } from "../../src/credits/spender.js";
import { succeed } from "../support/calls.js";
import { openProtocols, type ProtocolClients } from "../support/clients/all.js";
import type { ProtocolClient } from "../support/clients/protocol-client.js";
import { storedCredits } from "../support/credit-rows.js";
import { openTestApp, type TestApp } from "../support/harness.js";
import { createVictim, revocations, type Victim } from "./revocations.js";

/** Two replicas on one database: one has verifications that wait, the other revokes. */
let busy: TestApp;
let other: TestApp;
let protocols: ProtocolClients;
let sql: postgres.Sql;

beforeAll(async () => {
  busy = await openTestApp();
  other = await openTestApp({ databaseUrl: busy.databaseUrl });
  protocols = openProtocols(busy);
  sql = openSql(busy.databaseUrl, { max: 2, onnotice: () => {} });
});
afterAll(async () => {
  protocols.close();
  await sql.end({ timeout: 1 });
  await other.close();
  await busy.close();
});

/** A key with credits. */
interface Spending {
  readonly keyId: string;
  readonly key: string;
}

const credits = 10;

/** As many as the rate limit of the key admits. */
const verifications = 3;

/** The code of a verification, or of the refusal of its caller. */
async function verify(protocol: ProtocolClient, { key: caller }: Victim, { key }: Spending): Promise<string> {
  const outcome = await protocol.call("verifyKey", caller, { key, permissions: "documents.read" });
  return outcome.ok ? (outcome.data as { code: string }).code : outcome.code;
}

/** Locks the credits of a key in PostgreSQL. Returns the function that releases them. */
async function lockCredits({ keyId }: Spending): Promise<() => Promise<void>> {
  const own = await sql.reserve();
  await own`begin`;
  await own`select from key_credits where key_id = ${keyId} for update`;
  let locked = true;
  const release = async () => {
    if (!locked) return;
    locked = false;
    await own`rollback`;
    own.release();
  };
  onTestFinished(release);
  return release;
}

/** Whether a statement has waited for a lock for longer than one that spends for several keys does. */
async function isSetApart(): Promise<boolean> {
  const [row] = await sql<{ waits: boolean }[]>`
    select exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()
      and clock_timestamp() - query_start > ${`${2 * spenderSettings.lockWaitMs} ms`}::interval) as waits`;
  return row?.waits ?? false;
}

/**
 * Verifies a key while its credits are locked: the first statement waits for the lock, the next verifications wait for the
 * statement. Then a change is acknowledged, and then the lock is released. The first statement gives up after a while, also
 * on a machine that was too slow for the change. The attempt is then repeated with another key.
 *
 * @param code the expected result of the verifications that wait
 * @param settingsOf further settings of the key
 */
async function verifyMeanwhile(
  code: string,
  change: (victim: Victim, spending: Spending, free: Spending) => Promise<unknown>,
  settingsOf: (victim: Victim) => Promise<object> = async () => ({}),
) {
  for (let attemptsLeft = 5; ; attemptsLeft--) {
    const victim = await createVictim(other);
    const furtherSettings = await settingsOf(victim);
    const settings = { credits: { remaining: credits }, permissions: ["documents.read"], ...furtherSettings };
    const spending = await succeed<Spending>(other.httpUrl, "keys.createKey", victim.firstKey, {
      ...settings,
      ratelimits: [{ name: "requests", limit: verifications, duration: 3_600_000, autoApply: true }],
    });
    const free = await succeed<Spending>(other.httpUrl, "keys.createKey", victim.firstKey, settings);
    const release = await lockCredits(spending);
    const first = verify(protocols.http, victim, spending);
    await expect.poll(isSetApart, { timeout: 10_000, interval: 5 }).toBe(true);
    const waiting = [verify(protocols.grpc, victim, spending), verify(protocols.http, victim, spending)];
    // They were received earlier than these, which wait for nothing.
    for (const protocol of [protocols.grpc, protocols.http]) {
      expect(await verify(protocol, victim, free)).toBe("VALID");
    }
    await change(victim, spending, free);
    await release();
    const outcome = {
      first: await first,
      waiting: await Promise.all(waiting),
      left: (await storedCredits(sql, spending.keyId))[spending.keyId],
    };
    if (attemptsLeft === 0 || outcome.first === "VALID") return outcome;
    for (const waited of outcome.waiting) expect([code, outcome.first]).toContain(waited);
  }
}

describe("revocation race: verifications that wait to spend credits while their caller is revoked", () => {
  test.each(revocations.filter(({ name }) => !name.includes("than the change grants")))(
    "by $name are refused, and spend nothing",
    async ({ revoke, code }) => {
      const outcome = await verifyMeanwhile(code, (victim) => revoke(other, victim));
      expect(outcome).toEqual({ first: "VALID", waiting: [code, code], left: credits - 1 });
    },
  );
});

describe("revocation race: verifications that wait to spend credits of a key while it is revoked", () => {
  test.each<[string, string, object, string]>([
    ["by updateKey with enabled = false", "keys.updateKey", { enabled: false }, "DISABLED"],
    ["by updateKey without permissions", "keys.updateKey", { permissions: [] }, "INSUFFICIENT_PERMISSIONS"],
    ["by deleteKey", "keys.deleteKey", {}, "NOT_FOUND"],
  ])("%s are not valid, and spend nothing", async (_name, operation, request, code) => {
    const outcome = await verifyMeanwhile(code, ({ firstKey }, { keyId }) =>
      succeed(other.httpUrl, operation, firstKey, { keyId, ...request }),
    );
    expect(outcome).toEqual({ first: "VALID", waiting: [code, code], left: credits - 1 });
  });
});

describe("verifications that wait to spend credits until", () => {
  const lifetimeMs = 3_600_000;

  /** By the database's clock, which is ahead of the others after the first of these tests. */
  async function expiry(): Promise<number> {
    const [row] = await sql<{ now: Date }[]>`select clock_timestamp() as now`;
    return Number(row?.now) + lifetimeMs;
  }

  test.each<[string, string, (victim: Victim) => Promise<object>]>([
    ["the key has expired are not valid", "EXPIRED", async () => ({ expires: await expiry() })],
    [
      "their caller has expired are refused",
      "authentication/key_expired",
      async ({ firstKey, keyId }) => {
        await succeed(other.httpUrl, "keys.updateKey", firstKey, { keyId, expires: await expiry() });
        return {};
      },
    ],
  ])("%s, and spend nothing", async (_name, code, settingsOf) => {
    const outcome = await verifyMeanwhile(
      code,
      async (victim, _spending, free) => {
        await other.advance(lifetimeMs);
        await expect.poll(() => verify(protocols.http, victim, free)).toBe(code);
      },
      settingsOf,
    );
    expect(outcome).toEqual({ first: "VALID", waiting: [code, code], left: credits - 1 });
  });
});

describe("verifications that wait to spend credits spend them once, and count once against a rate limit", () => {
  test.each<[string, (victim: Victim, spending: Spending) => readonly [keyId: string, changes: object]]>([
    ["if the key is changed but still valid", (_victim, { keyId }) => [keyId, { name: "renamed" }]],
    ["if the caller is changed but still authorized", ({ keyId }) => [keyId, { scopes: ["keys.verify"] }]],
  ])("%s", async (_name, changeOf) => {
    const outcome = await verifyMeanwhile("VALID", (victim, spending) => {
      const [keyId, changes] = changeOf(victim, spending);
      return succeed(other.httpUrl, "keys.updateKey", victim.firstKey, { keyId, ...changes });
    });
    expect(outcome).toEqual({ first: "VALID", waiting: ["VALID", "VALID"], left: credits - verifications });
  });
});
