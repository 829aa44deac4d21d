import { setTimeout as sleep } from "node:timers/promises";
import type { Sql } from "postgres";
import { describe, expect, inject, onTestFinished, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import {
  callUntilAvailable,
  type Target,
  type UncheckedClient,
  type UncheckedClientKind,
  uncheckedClientKinds,
} from "../support/clients/unchecked.js";
import { createDatabase } from "../support/harness.js";
import { findPartialChanges } from "../support/integrity.js";
import { keyOperations, operatorOperations } from "../support/operations.js";
import { createRandom, type Random } from "../verification/faults/random.js";
import { openClient } from "./clients.js";
import { createLedger } from "./ledger.js";
import { kill, remainingProcesses, until } from "./processes.js";
import { type RetryCounts, retryCreates } from "./repetitions.js";
import { embeddedUrl, makeSandbox, type Service, start } from "./service.js";
import { createWriter, type KeyStates, type Knowledge, ownerRules, type Writer } from "./writers.js";

/** CRASHES=500 for a long run, CRASHES_SEED to repeat the same crash times and writes. */
const { CRASHES = "50", CRASHES_SEED = `${Date.now() % 1e6}` } = process.env;

/** The number of rounds in which PostgreSQL is killed, too. */
const withDatabase = Math.ceil(Number(CRASHES) / 6);

/** The number of writers per kind of client. */
const writersPerKind = 4;

/** The kill comes after at most this many acknowledged changes of a round, and after a short random delay. */
const maxChanges = 120;
const maxDelayMs = 20;

/** With at least this many rounds, every operation must have occurred, and creates of every outcome must have been retried. */
const minRounds = 20;

const operatorKey = "operator-credential-of-the-start-tests";

describe("after kill -9 during writes, every acknowledged change exists with its audit event, no change is partial, revocations hold, and requests with an Idempotency-Key can be retried", () => {
  test(`only the service is killed, ${Number(CRASHES) - withDatabase} times`, { timeout: 600_000 }, async () => {
    const database = await createDatabase(inject("template"));
    onTestFinished(() => database.drop());
    const sql = openSql(database.url, { max: 1, onnotice: () => {} });
    onTestFinished(() => sql.end({ timeout: 1 }));
    const set = { DATABASE_URL: database.url, REDIS_URL: inject("redisUrl"), OPERATOR_KEY: operatorKey };
    const sandbox = makeSandbox();
    await crash(Number(CRASHES) - withDatabase, {
      start: () => start(sandbox, { set: { ...set, LOG_LEVEL: "error" } }),
      async killService(service) {
        service.signal("SIGKILL");
        await service.ended;
        // PostgreSQL may still run statements that were sent before the kill.
        await until("PostgreSQL has closed the connections", async () => {
          const [left] = await sql`
            select from pg_stat_activity where datname = current_database() and application_name = 'latchkey'`;
          return left === undefined || undefined;
        });
      },
      inspect: (check) => check(sql),
    });
  });

  test(`the service and its PostgreSQL are killed together, ${withDatabase} times`, { timeout: 600_000 }, async () => {
    const sandbox = makeSandbox();
    await crash(withDatabase, {
      start: () => start(sandbox, { set: { OPERATOR_KEY: operatorKey, LOG_LEVEL: "error" } }),
      async killService(service) {
        const descendants = service.descendants();
        const postgres = descendants.filter(({ command }) => /\/postgres -D/.test(command));
        // A backend has the command line of the postmaster for a moment after its fork.
        const postmaster = postgres.filter(({ parent }) => !postgres.some(({ pid }) => pid === parent));
        expect(postmaster).toHaveLength(1);
        service.signal("SIGKILL");
        kill(postmaster);
        await service.ended;
        expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
      },
      async inspect(check) {
        const sql = openSql(embeddedUrl(sandbox.dataDir), { max: 1, onnotice: () => {} });
        await check(sql).finally(() => sql.end({ timeout: 1 }));
      },
    });
  });
});

/** How a service is started and killed, and how its database is inspected. */
interface Subject {
  start(): Promise<Service>;
  /** Resolves when no process of it remains. */
  killService(service: Service): Promise<void>;
  /** Runs a check on its database while the service runs. */
  inspect(check: (sql: Sql) => Promise<void>): Promise<void>;
}

/** Kills a service during writes, many times on the same data, and checks the data after each kill. */
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
  const retried: RetryCounts = { made: 0, undone: 0, answered: 0 };
  let service = await subject.start();
  const writers = await createWriters(service, random, known);
  for (let round = 1; round <= rounds; round++) {
    const context = `in round ${round} with CRASHES_SEED=${CRASHES_SEED}`;
    const clients = writers.map(({ kind }) => openClient(kind, service));
    const writing = writers.map((writer, index) => writer.write(clients[index] as UncheckedClient));
    const killAt = known.ledger.size + random.between(1, maxChanges);
    while (known.ledger.size < killAt) await sleep(1);
    await sleep(random.between(0, maxDelayMs));
    await subject.killService(service);
    await Promise.all(writing);
    for (const client of clients) client.close();
    expect(known.unexpected, context).toEqual([]);

    service = await subject.start();
    await subject.inspect(async (sql) => {
      expect(await findPartialChanges(sql, ownerRules), context).toEqual([]);
      expect(await retryCreates(service, sql, known.creates, random, retried), context).toEqual([]);
      expect(await findPartialChanges(sql, ownerRules), `after retries ${context}`).toEqual([]);
      expect(await known.ledger.compare(sql), context).toEqual([]);
    });
    expect(await findWrongResults(service, known), context).toEqual([]);
  }
  const counts = JSON.stringify(Object.fromEntries(known.counts));
  process.stdout.write(`${rounds} crashes, ${known.ledger.size} acknowledged changes, none lost: ${counts}\n`);
  process.stdout.write(`retried with their Idempotency-Key: ${JSON.stringify(retried)}\n`);
  expect(
    frequentOperations.filter((name) => !known.counts.has(name)),
    "frequent operations that did not occur",
  ).toEqual([]);
  // With fewer rounds, one of the others may not occur by chance.
  if (rounds < minRounds) return;
  expect([...known.counts.keys()].sort(), "every operation that writes").toEqual(mutatingOperations);
  expect(Object.values(retried), JSON.stringify(retried)).not.toContain(0);
}

/** They need nothing that only some writers have, so they occur in every run. */
const frequentOperations = [
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
] as const;

/** Every mutating operation: those that neither read nor only count. */
const mutatingOperations = [...keyOperations, ...operatorOperations]
  .filter((name) => !/^(get|list|verify|whoami|limit|multiLimit)/.test(name))
  .sort();

/** Creates writers for each kind of client, each with its own workspace. */
async function createWriters(service: Service, random: Random, known: Knowledge): Promise<Writer[]> {
  const operator = openClient("HTTP", service);
  const kinds = uncheckedClientKinds.flatMap((kind) => Array<UncheckedClientKind>(writersPerKind).fill(kind));
  const writers: Writer[] = [];
  for (const [index, kind] of kinds.entries()) {
    const name = `w${index}`;
    const created = await operator.call("createWorkspace", operatorKey, { name });
    const key = created.kind === "success" ? String(created.data["key"]) : expect.fail(JSON.stringify(created));
    writers.push(createWriter(kind, name, key, operatorKey, random.fork(), known));
  }
  operator.close();
  return writers;
}

/** The number of latest keys to check: those of this round, and some of earlier rounds. */
const maxChecked = 60;

/** Finds keys whose verification contradicts the acknowledged changes. Uses every kind of client in turn. */
async function findWrongResults(target: Target, { keys, callers }: Knowledge): Promise<string[]> {
  const open = uncheckedClientKinds.map((kind) => openClient(kind, target));
  const latestOf = (states: KeyStates) => [...states].slice(-maxChecked).entries();
  const clientAt = (index: number) => open[index % open.length] as UncheckedClient;
  const verified = [...latestOf(keys)].map(async ([index, [secret, { workspaceKey, valid: expected }]]) => {
    const outcome = await callUntilAvailable(clientAt(index), "verifyKey", workspaceKey, { key: secret });
    const valid = outcome.kind === "success" ? outcome.data["valid"] === true : undefined;
    return expected === undefined || valid === expected
      ? []
      : [`a key should be valid: ${expected}, but the outcome is ${JSON.stringify(outcome)}`];
  });
  const called = [...latestOf(callers)].map(async ([index, [secret, { valid: expected }]]) => {
    const outcome = await callUntilAvailable(clientAt(index), "listKeys", secret, {});
    const accepted = { success: true, refused: false }[outcome.kind as string];
    return expected === undefined || accepted === expected
      ? []
      : [`a workspace should be enabled: ${expected}, but the outcome is ${JSON.stringify(outcome)}`];
  });
  const wrongResults = (await Promise.all([...verified, ...called])).flat();
  for (const caller of open) caller.close();
  return wrongResults;
}
