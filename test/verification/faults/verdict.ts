import type { FaultKind } from "./faults.js";
import type { RoundState } from "./round.js";
import { total } from "./tally.js";

/** What a round must reach for its silence to mean anything. */
export interface Demands {
  readonly callsPerSecondWhileFaultsOn: number;
  readonly writesPerSecond: number;
  /** Changes made with keys, and calls with late bodies that were accepted, and refused: each. */
  readonly lateCallsPerSecond: number;
  /** Each of these must have happened, so often. */
  readonly faults: readonly FaultKind[];
  readonly leastOfEachFault: number;
}

/** Everything that is wrong with a round; nothing if it has proven what it is to prove. */
export function findFailings({ tally, elapsedMs, faultsOnMs, crashes }: RoundState, demands: Demands): string[] {
  const failings: string[] = [];
  if (tally.violationCount > 0) failings.push(`${tally.violationCount} violations`);
  const rate = perSecond(tally.judgedWhileFaultsOn, faultsOnMs);
  if (!(rate >= demands.callsPerSecondWhileFaultsOn)) {
    failings.push(
      `too little traffic: ${rate.toFixed(0)} judged calls/s, not ${demands.callsPerSecondWhileFaultsOn.toFixed(0)}`,
    );
  }
  const writes = perSecond(tally.writesAcknowledged, elapsedMs);
  if (!(writes >= demands.writesPerSecond)) {
    failings.push(`too few acknowledged writes: ${writes.toFixed(1)}/s, not ${demands.writesPerSecond}`);
  }
  const { lateWords } = tally;
  const accepted = lateWords.get("accepted") ?? 0;
  const late = { effects: tally.effects, accepted, refused: total(lateWords) - accepted };
  for (const [what, count] of Object.entries(late)) {
    const rate = perSecond(count, elapsedMs);
    if (!(rate >= demands.lateCallsPerSecond)) {
      failings.push(`too few late calls, ${what}: ${rate.toFixed(1)}/s, not ${demands.lateCallsPerSecond}`);
    }
  }
  const times = ({ name }: FaultKind) => tally.faults.get(name) ?? 0;
  const rare = demands.faults.filter((kind) => times(kind) < demands.leastOfEachFault);
  if (rare.length > 0) {
    const list = rare.map((kind) => `${kind.name} (${times(kind)})`).join(", ");
    failings.push(`happened less than ${demands.leastOfEachFault} times: ${list}`);
  }
  if (tally.unexpected.size > 0) failings.push(`unexpected answers: ${[...tally.unexpected.keys()].join(", ")}`);
  if (crashes > 0) failings.push(`replicas ended by themselves ${crashes} times`);
  return failings;
}

export function perSecond(count: number, ms: number): number {
  return ms > 0 ? (count * 1_000) / ms : 0;
}
