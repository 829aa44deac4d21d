import type { Violation } from "./checker.js";

/** The counters of a round. */
export interface Tally {
  readonly callsByProtocol: Count;
  /** Calls with a result that was checked: accepted or refused. */
  checked: number;
  checkedDuringFaults: number;
  readonly results: Count;
  /** Results of calls with a delayed body. */
  readonly delayedResults: Count;
  /** Calls that were refused because their deadline passed before their body arrived. */
  refusedAfterDeadline: number;
  /** Changes that were made with a key, and checked against its revocation. */
  effects: number;
  /** Verifications in the processes of verifiers, without a call to the service. */
  local: number;
  localDuringFaults: number;
  /** Verifications for which a verifier called the service. */
  askedByVerifiers: number;
  readonly verifierResults: Count;
  readonly unavailable: Count;
  /** Results that a correct service never returns here, such as invalid input. */
  readonly unexpected: Count;
  readonly writes: Count;
  writesAcknowledged: number;
  readonly faults: Count;
  /** How long after each suspend calls were checked as if they had begun before it. */
  readonly boundsMs: number[];
  /** Why a fault could not be injected as intended. */
  readonly mishaps: Count;
  /** How long each acknowledged `disableWorkspace` took, and the faults meanwhile. */
  readonly disables: { readonly ms: number; readonly under: readonly string[] }[];
  readonly retired: Count;
  violationCount: number;
  /** The first violations, in detail. */
  readonly violations: Violation[];
}

export type Count = Map<string, number>;

export function createTally(): Tally {
  return {
    callsByProtocol: new Map(),
    checked: 0,
    checkedDuringFaults: 0,
    results: new Map(),
    delayedResults: new Map(),
    refusedAfterDeadline: 0,
    effects: 0,
    local: 0,
    localDuringFaults: 0,
    askedByVerifiers: 0,
    verifierResults: new Map(),
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

const maxViolations = 20;

/** Counts violations, and stores the first ones with the active faults. */
export function recordViolations(
  tally: Tally,
  violations: readonly Violation[],
  activeFaults: readonly string[],
): void {
  tally.violationCount += violations.length;
  for (const violation of violations) {
    if (tally.violations.length >= maxViolations) break;
    tally.violations.push({ ...violation, faults: [...activeFaults] });
  }
}

export function add(count: Count, name: string, times = 1): void {
  count.set(name, (count.get(name) ?? 0) + times);
}

export function total(count: Count): number {
  return [...count.values()].reduce((sum, each) => sum + each, 0);
}
