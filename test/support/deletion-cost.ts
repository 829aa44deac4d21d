import type { Sql } from "postgres";
import { expect } from "vitest";
import { median } from "./stopwatch.js";

type Work = () => Promise<unknown>;

const rounds = 3;

/**
 * Asserts that a deletion takes no longer with many keys than with none and writes no row of them, and that a change of
 * another workspace that runs beside it takes no longer than alone.
 *
 * Compared are the fastest deletion and the median change: a busy machine delays one of them, a deletion whose cost grows
 * with its keys delays all.
 */
export async function expectConstantCost(options: {
  readonly sql: Sql;
  /** The workspace of the keys. All of them belong to identities. */
  readonly workspaceId: string;
  /** Creates what has no keys, and returns its deletion. */
  readonly withNone: () => Promise<Work>;
  /** Creates what has many keys, and returns its deletion. */
  readonly withMany: (round: number) => Promise<Work>;
  /** A change of another workspace. */
  readonly change: (round: number) => Promise<unknown>;
}): Promise<void> {
  const deletions: Work[] = [];
  for (let round = 0; round < rounds; round++) deletions.push(await options.withMany(round));
  const before = await versionsOf(options);

  const usual = { deletion: 0, change: 0 };
  for (let round = 0; round < rounds; round++) {
    usual.deletion = Math.max(usual.deletion, await duration(await options.withNone()));
    usual.change = Math.max(usual.change, await duration(() => options.change(round)));
  }
  const times: [deletion: number, change: number][] = [];
  for (const [round, deletion] of deletions.entries()) {
    times.push(await Promise.all([duration(deletion), duration(() => options.change(rounds + round))]));
  }
  const fastest = Math.min(...times.map(([deletion]) => deletion));
  expect(fastest, `usually ${usual.deletion} ms`).toBeLessThan(5 * usual.deletion);
  expect(median(times.map(([, change]) => change)), `usually ${usual.change} ms`).toBeLessThan(5 * usual.change);
  expect(await versionsOf(options)).toEqual(before);
}

/** The version of each row: one that is written has another. */
async function versionsOf({ sql, workspaceId }: { sql: Sql; workspaceId: string }) {
  return sql`
    select count(*), md5(string_agg(xmin::text || ctid::text, ',' order by key_id)) from keys
    where workspace_id = ${workspaceId} and identity_id is not null`;
}

async function duration(work: Work): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}
