import { expect } from "vitest";
import type { Answers } from "../contract/answers.js";
import type { CallRequest, Door } from "../contract/door.js";
import { openDoors } from "../contract/doors.js";
import type { OperationName } from "../contract/operations.js";
import { openTestApp, type TestApp } from "../harness.js";
import { readLookups } from "./vitals.js";

/** Several services on one database. */
export interface Replicas {
  readonly apps: readonly TestApp[];
  /** gRPC and HTTP of each. */
  readonly doors: readonly Door[];
  /** Changes something, by way of another replica and another door each time. */
  change<Name extends OperationName>(name: Name, credential: string, request: CallRequest): Promise<Answers[Name]>;
  /** Asks every replica through both doors at once; each must answer. */
  ask<Name extends OperationName>(name: Name, credential: string, request: CallRequest): Promise<Answers[Name][]>;
  /** How a key is answered that calls by itself, at every door. */
  outcomes(key: string): Promise<string[]>;
  /** Makes sure that every replica answers about this key from what it holds. */
  expectHeld(key: string): Promise<void>;
  close(): Promise<void>;
}

/** Opens so many services; without a URL, on a database of the tests' own. */
export async function openReplicas(count: number, databaseUrl?: string): Promise<Replicas> {
  const apps: TestApp[] = [];
  for (let url = databaseUrl; apps.length < count; url = apps[0]?.databaseUrl) {
    apps.push(await openTestApp({ metricsPort: 0, ...(url !== undefined && { databaseUrl: url }) }));
  }
  const opened = apps.map(openDoors);
  const doors = opened.flatMap(({ grpc, http }): Door[] => [grpc, http]);
  let changes = 0;

  const outcomes = (key: string) =>
    Promise.all(
      doors.map(async (door) => {
        const outcome = await door.call("listKeys", key, {});
        return outcome.ok ? "ok" : outcome.code;
      }),
    );
  const countLookups = () => Promise.all(apps.map((app) => readLookups(app, "key")));

  return {
    apps,
    doors,
    change: (...call) => succeed(doors[changes++ % doors.length] as Door, ...call),
    ask: (...call) => Promise.all(doors.map((door) => succeed(door, ...call))),
    outcomes,
    async expectHeld(key) {
      await outcomes(key);
      const before = await countLookups();
      await outcomes(key);
      for (const [index, { held, ...elsewhere }] of (await countLookups()).entries()) {
        const { held: heldBefore = Number.NaN, ...elsewhereBefore } = before[index] ?? {};
        expect(elsewhere).toEqual(elsewhereBefore);
        expect(held).toBe(heldBefore + 2);
      }
    },
    async close() {
      for (const each of opened) each.close();
      // The first one's database goes with it.
      for (const app of apps.toReversed()) await app.close();
    },
  };
}

async function succeed<Name extends OperationName>(
  door: Door,
  name: Name,
  credential: string,
  request: CallRequest,
): Promise<Answers[Name]> {
  const outcome = await door.call(name, credential, request);
  if (!outcome.ok) return expect.fail(`${name} over ${door.name} was refused: ${outcome.code}: ${outcome.detail}`);
  return outcome.data as Answers[Name];
}
