import type { FaultKind } from "./faults.js";
import type { RoundState } from "./round.js";
import { total } from "./tally.js";

/** The minimum load and faults of a round. Below them, zero violations prove nothing. */
export interface Requirements {
  readonly callsPerSecondDuringFaults: number;
  /** Verifications by verifiers without a call to the service. Omitted: none are required. */
  readonly localPerSecondDuringFaults?: number;
  readonly writesPerSecond: number;
  /** The minimum for each: changes made with keys, accepted calls with a delayed body, and refused ones. */
  readonly delayedCallsPerSecond: number;
  /** Each of these must have happened at least `minOfEachFault` times. */
  readonly faults: readonly FaultKind[];
  readonly minOfEachFault: number;
}

/** Returns why a round fails. Empty if it passes. */
export function findFailings(
  { tally, elapsedMs, faultsActiveMs, crashes }: RoundState,
  requirements: Requirements,
): string[] {
  const failings: string[] = [];
  if (tally.violationCount > 0) failings.push(`${tally.violationCount} violations`);
  const requiredRate = requirements.callsPerSecondDuringFaults;
  const rate = perSecond(tally.checkedDuringFaults, faultsActiveMs);
  if (!(rate >= requiredRate)) {
    failings.push(
      `too little traffic during faults: ${rate.toFixed(0)} checked calls/s, required: ${requiredRate.toFixed(0)}`,
    );
  }
  const requiredLocal = requirements.localPerSecondDuringFaults ?? 0;
  const local = perSecond(tally.localDuringFaults, faultsActiveMs);
  if (!(local >= requiredLocal))
    failings.push(`too few local verifications during faults: ${local.toFixed(0)}/s, required: ${requiredLocal}`);
  const writes = perSecond(tally.writesAcknowledged, elapsedMs);
  if (!(writes >= requirements.writesPerSecond)) {
    failings.push(`too few acknowledged writes: ${writes.toFixed(1)}/s, required: ${requirements.writesPerSecond}`);
  }
  const { delayedResults } = tally;
  const accepted = delayedResults.get("accepted") ?? 0;
  const { delayedCallsPerSecond } = requirements;
  const delayed = { effects: tally.effects, accepted, refused: total(delayedResults) - accepted };
  for (const [name, count] of Object.entries(delayed)) {
    const rate = perSecond(count, elapsedMs);
    if (!(rate >= delayedCallsPerSecond)) {
      failings.push(
        `too few calls with a delayed body, ${name}: ${rate.toFixed(1)}/s, required: ${delayedCallsPerSecond}`,
      );
    }
  }
  const times = ({ name }: FaultKind) => tally.faults.get(name) ?? 0;
  const rare = requirements.faults.filter((kind) => times(kind) < requirements.minOfEachFault);
  if (rare.length > 0) {
    const list = rare.map((kind) => `${kind.name} (${times(kind)})`).join(", ");
    failings.push(`faults that happened less than ${requirements.minOfEachFault} times: ${list}`);
  }
  if (tally.unexpected.size > 0) failings.push(`unexpected results: ${[...tally.unexpected.keys()].join(", ")}`);
  if (crashes > 0) failings.push(`replicas or verifiers exited unexpectedly ${crashes} times`);
  return failings;
}

export function perSecond(count: number, ms: number): number {
  return ms > 0 ? (count * 1_000) / ms : 0;
}
