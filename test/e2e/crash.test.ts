import { setTimeout as sleep } from "node:timers/promises";
import type { Sql } from "postgres";
import { describe, expect, inject, onTestFinished, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { createDatabase } from "../support/harness.js";
import { findHalves } from "../support/integrity.js";
import { createRandom, type Random } from "../verification/faults/random.js";
import { type Caller, type CallerKind, callerKinds, judged, type Target } from "./callers.js";
import { createLedger } from "./ledger.js";
import { kill, leftOf, until } from "./processes.js";
import { type Repeated, repeatCreates } from "./repetitions.js";
import { embeddedUrl, makePlace, type Service, start } from "./service.js";
import { createWriter, type Knowledge, ownerRules, type Standings, type Writer } from "./writers.js";

/** CRASHES=500 for a long run, CRASHES_SEED to choose the same moments and writes again. */
const { CRASHES = "50", CRASHES_SEED = `${Date.now() % 1e6}` } = process.env;

/** Of all rounds, those in which PostgreSQL is killed, too. */
const withDatabase = Math.ceil(Number(CRASHES) / 6);

/** How many write through each kind of client. */
const writersPerKind = 4;

/** The blow falls once so many changes of a round were acknowledged, at most, and a moment later. */
const mostChanges = 120;
const momentMs = 20;

/** From so many rounds on, creates of every fate must have been sent again. */
const enoughRounds = 20;

const operatorKey = "operator-credential-of-the-start-tests";

describe("after kill -9 amid writes every acknowledged change is there with its event, none in half, revocations hold, and what was sent with an Idempotency-Key can be sent again", () => {
  test(`the service alone is killed, ${Number(CRASHES) - withDatabase} times`, { timeout: 600_000 }, async () => {
    const database = await createDatabase(inject("template"));
    onTestFinished(() => database.drop());
    const sql = openSql(database.url, { max: 1, onnotice: () => {} });
    onTestFinished(() => sql.end({ timeout: 1 }));
    const set = { DATABASE_URL: database.url, REDIS_URL: inject("redisUrl"), OPERATOR_KEY: operatorKey };
    const place = makePlace();
    await crash(Number(CRASHES) - withDatabase, {
      start: () => start(place, { set: { ...set, LOG_LEVEL: "error" } }),
      async strike(service) {
        service.signal("SIGKILL");
        await service.ended;
        // What was sent before the blow may still be carried out after it.
        await until("PostgreSQL has noticed", async () => {
          const [left] = await sql`
            select from pg_stat_activity where datname = current_database() and application_name = 'latchkey'`;
          return left === undefined || undefined;
        });
      },
      look: (look) => look(sql),
    });
  });

  test(`the service and its PostgreSQL are killed at once, ${withDatabase} times`, { timeout: 600_000 }, async () => {
    const place = makePlace();
    await crash(withDatabase, {
      start: () => start(place, { set: { OPERATOR_KEY: operatorKey, LOG_LEVEL: "error" } }),
      async strike(service) {
        const family = service.family();
        const postmaster = family.filter(({ command }) => /\/postgres -D/.test(command));
        expect(postmaster).toHaveLength(1);
        service.signal("SIGKILL");
        kill(postmaster);
        await service.ended;
        expect(await leftOf(family, place.folder)).toEqual([]);
      },
      async look(look) {
        const sql = openSql(embeddedUrl(place.dataDir), { max: 1, onnotice: () => {} });
        await look(sql).finally(() => sql.end({ timeout: 1 }));
      },
    });
  });
});

/** How a service is started, killed and looked into. */
interface Subject {
  start(): Promise<Service>;
  /** Resolves when nothing of it is left. */
  strike(service: Service): Promise<void>;
  /** Looks into its database while it runs. */
  look(look: (sql: Sql) => Promise<void>): Promise<void>;
}

/** Kills a service amid writes, again and again on the same data, and looks each time what is there afterwards. */
async function crash(rounds: number, subject: Subject): Promise<void> {
  process.stdout.write(`CRASHES_SEED=${CRASHES_SEED}\n`);
  const random = createRandom(Number(CRASHES_SEED));
  const known: Knowledge = {
    ledger: createLedger(),
    keys: new Map(),
    callers: new Map(),
    creates: [],
    unexpected: [],
    counts: new Map(),
  };
  const repeated: Repeated = { made: 0, undone: 0, answered: 0 };
  let service = await subject.start();
  const writers = await createWriters(service, random, known);
  for (let round = 1; round <= rounds; round++) {
    const where = `in round ${round} with CRASHES_SEED=${CRASHES_SEED}`;
    const callers = writers.map(({ kind }) => callerKinds[kind](service));
    const writing = writers.map((writer, index) => writer.write(callers[index] as Caller));
    const enough = known.ledger.size + random.between(1, mostChanges);
    while (known.ledger.size < enough) await sleep(1);
    await sleep(random.between(0, momentMs));
    await subject.strike(service);
    await Promise.all(writing);
    for (const caller of callers) caller.close();
    expect(known.unexpected, where).toEqual([]);

    service = await subject.start();
    await subject.look(async (sql) => {
      expect(await findHalves(sql, ownerRules), where).toEqual([]);
      expect(await repeatCreates(service, sql, known.creates, random, repeated), where).toEqual([]);
      expect(await findHalves(sql, ownerRules), `after repetitions ${where}`).toEqual([]);
      expect(await known.ledger.compare(sql), where).toEqual([]);
    });
    expect(await findMisjudged(service, known), where).toEqual([]);
  }
  const counts = JSON.stringify(Object.fromEntries(known.counts));
  process.stdout.write(`${rounds} crashes, ${known.ledger.size} acknowledged changes, none lost: ${counts}\n`);
  process.stdout.write(`sent again with their Idempotency-Key: ${JSON.stringify(repeated)}\n`);
  expect([...known.counts.keys()].sort(), "every operation that writes").toEqual(writing);
  // In a few rounds, chance may leave one out.
  if (rounds >= enoughRounds) expect(Object.values(repeated), JSON.stringify(repeated)).not.toContain(0);
}

/** Every operation that changes something. */
const writing = [
  "createIdentity",
  "createKey",
  "createRootKey",
  "createWorkspace",
  "deleteIdentity",
  "deleteKey",
  "disableWorkspace",
  "enableWorkspace",
  "rerollKey",
  "updateIdentity",
  "updateKey",
];

/** Writers for each kind of client, each with a workspace of its own. */
async function createWriters(service: Service, random: Random, known: Knowledge): Promise<Writer[]> {
  const operator = callerKinds["HTTP, kept alive"](service);
  const kinds = (Object.keys(callerKinds) as CallerKind[]).flatMap((kind) =>
    Array<CallerKind>(writersPerKind).fill(kind),
  );
  const writers: Writer[] = [];
  for (const [index, kind] of kinds.entries()) {
    const name = `w${index}`;
    const made = await operator.call("createWorkspace", operatorKey, { name });
    const key = made.kind === "answered" ? String(made.data["key"]) : expect.fail(JSON.stringify(made));
    writers.push(createWriter(kind, name, key, operatorKey, random.fork(), known));
  }
  operator.close();
  return writers;
}

/** How many of the latest keys are looked at: those of this round, and some of those before. */
const mostLookedAt = 60;

/** Which keys are not judged as the acknowledged changes say: through every kind of client, in turn. */
async function findMisjudged(target: Target, { keys, callers }: Knowledge): Promise<string[]> {
  const open = Object.values(callerKinds).map((openCaller) => openCaller(target));
  const latestOf = (standings: Standings) => [...standings].slice(-mostLookedAt).entries();
  const callerAt = (index: number) => open[index % open.length] as Caller;
  const verified = [...latestOf(keys)].map(async ([index, [secret, { workspaceKey, good }]]) => {
    const fate = await judged(callerAt(index), "verifyKey", workspaceKey, { key: secret });
    const valid = fate.kind === "answered" ? fate.data["valid"] === true : undefined;
    return good === undefined || valid === good ? [] : [`a key is good: ${good}, but it got ${JSON.stringify(fate)}`];
  });
  const called = [...latestOf(callers)].map(async ([index, [secret, { good }]]) => {
    const fate = await judged(callerAt(index), "listKeys", secret, {});
    const letIn = { answered: true, declined: false }[fate.kind as string];
    return good === undefined || letIn === good ? [] : [`a workspace is: ${good}, but it got ${JSON.stringify(fate)}`];
  });
  const misjudged = (await Promise.all([...verified, ...called])).flat();
  for (const caller of open) caller.close();
  return misjudged;
}
