import { expect } from "vitest";

type Timed = () => Promise<unknown>;

const rounds = 3;

/**
 * Asserts that a deletion takes no longer with many keys than with none, and that a change of another workspace which
 * runs beside it takes no longer than alone. The fastest of several rounds is judged: a busy machine delays one of
 * them, a deletion whose cost grows with its keys delays all.
 */
export async function expectConstantCost(options: {
  /** Creates what has no keys, and returns its deletion. */
  readonly withNone: () => Promise<Timed>;
  /** Creates what has many keys, and returns its deletion. */
  readonly withMany: (round: number) => Promise<Timed>;
  /** A change of another workspace. */
  readonly change: (round: number) => Promise<unknown>;
}): Promise<void> {
  const deletions: Timed[] = [];
  for (let round = 0; round < rounds; round++) deletions.push(await options.withMany(round));

  const usual = { deletion: 0, change: 0 };
  for (let round = 0; round < rounds; round++) {
    usual.deletion = Math.max(usual.deletion, await duration(await options.withNone()));
    usual.change = Math.max(usual.change, await duration(() => options.change(round)));
  }
  const fastest = { deletion: Number.POSITIVE_INFINITY, change: Number.POSITIVE_INFINITY };
  for (const [round, deletion] of deletions.entries()) {
    const [ofDeletion, ofChange] = await Promise.all([
      duration(deletion),
      duration(() => options.change(rounds + round)),
    ]);
    fastest.deletion = Math.min(fastest.deletion, ofDeletion);
    fastest.change = Math.min(fastest.change, ofChange);
  }
  expect(fastest.deletion, `usually ${usual.deletion} ms`).toBeLessThan(5 * usual.deletion);
  expect(fastest.change, `usually ${usual.change} ms`).toBeLessThan(5 * usual.change);
}

async function duration(work: Timed): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}
