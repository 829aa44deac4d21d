import type { Violation } from "./checker.js";

/** What a round counts. */
export interface Tally {
  readonly callsByProtocol: Count;
  /** Calls that were judged: accepted or refused. */
  judged: number;
  judgedWhileFaultsOn: number;
  readonly words: Count;
  /** Answers to calls whose body came late. */
  readonly lateWords: Count;
  /** Calls whose deadline passed before their body came, and that were told so. */
  overdue: number;
  /** Changes that were made with a key, and held against its end. */
  effects: number;
  readonly unavailable: Count;
  /** Answers that no state of a sound service gives, such as invalid input. */
  readonly unexpected: Count;
  readonly writes: Count;
  writesAcknowledged: number;
  readonly faults: Count;
  /** How long after each suspend calls were judged as if they had begun before it. */
  readonly boundsMs: number[];
  /** Why a fault could not be made as it was meant. */
  readonly mishaps: Count;
  /** How long each acknowledged Disable took, and under which Redis faults. */
  readonly disables: { readonly ms: number; readonly under: readonly string[] }[];
  readonly retired: Count;
  violationCount: number;
  /** The first ones, in detail. */
  readonly violations: Violation[];
}

export type Count = Map<string, number>;

export function createTally(): Tally {
  return {
    callsByProtocol: new Map(),
    judged: 0,
    judgedWhileFaultsOn: 0,
    words: new Map(),
    lateWords: new Map(),
    overdue: 0,
    effects: 0,
    unavailable: new Map(),
    unexpected: new Map(),
    writes: new Map(),
    writesAcknowledged: 0,
    faults: new Map(),
    boundsMs: [],
    mishaps: new Map(),
    disables: [],
    retired: new Map(),
    violationCount: 0,
    violations: [],
  };
}

const violationsKept = 20;

/** Counts violations, and keeps the first ones with the faults that were on. */
export function keepViolations(tally: Tally, violations: readonly Violation[], faultsOn: readonly string[]): void {
  tally.violationCount += violations.length;
  for (const violation of violations) {
    if (tally.violations.length >= violationsKept) break;
    tally.violations.push({ ...violation, faults: [...faultsOn] });
  }
}

export function add(count: Count, name: string): void {
  count.set(name, (count.get(name) ?? 0) + 1);
}

export function total(count: Count): number {
  return [...count.values()].reduce((sum, each) => sum + each, 0);
}
