import { setTimeout as sleep } from "node:timers/promises";
import { expect, inject, onTestFinished, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { openUnchecked, type UncheckedClientKind, uncheckedClientKinds } from "../support/clients/unchecked.js";
import { storedCredits } from "../support/credit-rows.js";
import { createDatabase } from "../support/harness.js";
import { createRandom } from "../verification/faults/random.js";
import { until } from "./processes.js";
import { call, makeSandbox, type Service, start } from "./service.js";

/** CREDITS_SEED repeats the same times of the kills. */
const { CREDITS_SEED = `${Date.now() % 1e6}` } = process.env;

const operatorKey = "operator-credential-of-the-credits-test";
const rounds = 5;
const credits = 100_000;

/** The clients of each replica: several of each kind, and each makes one call at a time. */
const clientsPerKind = 4;

test("after kill -9 of a replica during verifications, the credits used are at least the acknowledged and at most the attempted ones", {
  timeout: 600_000,
}, async () => {
  process.stdout.write(`CREDITS_SEED=${CREDITS_SEED}\n`);
  const random = createRandom(Number(CREDITS_SEED));
  const database = await createDatabase(inject("template"));
  onTestFinished(() => database.drop());
  const sql = openSql(database.url, { max: 1, onnotice: () => {} });
  onTestFinished(() => sql.end({ timeout: 1 }));
  const set = {
    DATABASE_URL: database.url,
    REDIS_URL: inject("redisUrl"),
    OPERATOR_KEY: operatorKey,
    LOG_LEVEL: "error",
  };
  const startReplica = () => start(makeSandbox(), { set });
  const survivor = await startReplica();
  const { key: caller } = await succeed(survivor, "/v2/workspaces.createWorkspace", operatorKey, { name: "test" });
  const created = { credits: { remaining: credits } };
  const { key, keyId } = await succeed(survivor, "/v2/keys.createKey", caller, created);
  const counts = { attempted: 0, acknowledged: 0 };

  /** Verifies the key without a pause, until this is over. */
  async function verifyRepeatedly(kind: UncheckedClientKind, service: Service, isOver: () => boolean): Promise<void> {
    const client = openUnchecked(kind, service, { timeoutMs: 20_000, maxConnections: 1 });
    while (!isOver()) {
      counts.attempted += 1;
      const outcome = await client.call("verifyKey", caller, { key });
      if (outcome.kind === "success" && outcome.data["code"] === "VALID") counts.acknowledged += 1;
      else if (outcome.kind === "success") expect.fail(`unexpected result ${JSON.stringify(outcome.data)}`);
    }
    client.close();
  }

  for (let round = 1; round <= rounds; round++) {
    const context = `in round ${round} with CREDITS_SEED=${CREDITS_SEED}`;
    const victim = await startReplica();
    let over = false;
    const verifying = [survivor, victim].flatMap((service) =>
      uncheckedClientKinds.flatMap((kind) =>
        Array.from({ length: clientsPerKind }, () => verifyRepeatedly(kind, service, () => over)),
      ),
    );
    const before = counts.acknowledged;
    await until("verifications are acknowledged", () => counts.acknowledged > before + 200 || undefined);
    await sleep(random.between(0, 50));
    victim.signal("SIGKILL");
    await victim.ended;
    over = true;
    await Promise.all(verifying);
    // PostgreSQL may still run a statement that was sent before the kill.
    await until("PostgreSQL has ended the victim's statements", async () => {
      const [left] = await sql`
        select from pg_stat_activity where datname = current_database() and state <> 'idle' and pid <> pg_backend_pid()
          and query like '%spend_credits%'`;
      return left === undefined || undefined;
    });
    const used = credits - ((await storedCredits(sql, keyId))[keyId] ?? Number.NaN);
    expect(used, context).toBeGreaterThanOrEqual(counts.acknowledged);
    expect(used, context).toBeLessThanOrEqual(counts.attempted);
  }
  process.stdout.write(`${rounds} kills: ${JSON.stringify(counts)}\n`);

  // The rest is spent exactly.
  const left = (await storedCredits(sql, keyId))[keyId] ?? Number.NaN;
  await succeed(survivor, "/v2/keys.updateCredits", caller, { keyId, operation: "decrement", value: left - 10 });
  const codes = await Promise.all(
    Array.from({ length: 30 }, async () => (await succeed(survivor, "/v2/keys.verifyKey", caller, { key })).code),
  );
  expect(codes.filter((code) => code === "VALID")).toHaveLength(10);
});

/** The members of the responses that the test reads. */
interface Created {
  readonly key: string;
  readonly keyId: string;
  readonly code: string;
}

async function succeed(service: Service, path: string, credential: string, body: object): Promise<Created> {
  const { status, data } = await call(service, path, credential, body);
  expect(status, JSON.stringify(data)).toBe(200);
  return data as unknown as Created;
}
