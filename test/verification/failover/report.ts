import { section, sorted, toHistory } from "../faults/report.js";
import { total } from "../faults/tally.js";
import type { RunState } from "./round.js";

export interface ReportFacts {
  readonly seed: number;
  readonly design: string;
  /** The version of PostgreSQL. */
  readonly postgres: string;
  readonly failings: readonly string[];
}

/** Returns why a run fails. Empty if it passes. */
export function findFailings(
  { tally, promotions, lost, audited, crashes, cancelled }: RunState,
  rounds: number,
): string[] {
  const failings: string[] = [];
  if (lost > 0) failings.push(`${lost} workspaces or keys have lost an acknowledged change`);
  if (tally.violationCount > 0) failings.push(`${tally.violationCount} violations`);
  if (promotions < rounds) failings.push(`only ${promotions} of ${rounds} promotions happened`);
  if (tally.writesAcknowledged < 10 * promotions || audited < 10 * promotions) failings.push("too few changes");
  if (cancelled === 0) failings.push("no commit waited for the standby, so none was cancelled");
  if (tally.unexpected.size > 0) failings.push(`unexpected results: ${[...tally.unexpected.keys()].join(", ")}`);
  if (crashes > 0) failings.push(`replicas exited unexpectedly ${crashes} times`);
  return failings;
}

/** The report of a run as plain text. */
export function toText(state: RunState, { seed, design, postgres, failings }: ReportFacts): string {
  const { tally, promotions, cancelled, subjects, audited, lost, unavailableMs, crashes } = state;
  const unavailable = unavailableMs.map((ms) => ms.toFixed(0)).join(", ");
  return [
    section("Run", [
      ["seed", seed],
      ["design", design],
      ["PostgreSQL", postgres],
      ["primaries lost, standbys promoted", promotions],
      ["from the loss to the next response, ms", unavailable || "none"],
      ["commits whose wait for the standby was cancelled", cancelled],
      ["replicas that exited unexpectedly", crashes],
    ]),
    section("Changes", [["acknowledged", tally.writesAcknowledged], ...sorted(tally.writes)]),
    section("Calls during the run", [
      ...sorted(tally.callsByProtocol),
      ["total", total(tally.callsByProtocol)],
      ["checked", tally.checked],
      ["unavailable", total(tally.unavailable)],
      ...sorted(tally.unexpected).map(([name, count]) => [`unexpected: ${name}`, count] as const),
    ]),
    section("After the promotions", [
      ["workspaces and keys", subjects],
      ["audited after a promotion, in total", audited],
      ["of them with a lost change", lost],
      ["violations, in these audits and in calls", tally.violationCount],
    ]),
    ...tally.violations.slice(0, 3).map(toHistory),
    failings.length === 0 ? "The run passed." : `The run FAILED: ${failings.join("; ")}.`,
  ].join("\n");
}

/** The report of a run as JSON. */
export function toJson({ tally, ...rest }: RunState, facts: ReportFacts): string {
  const { disables: _samples, ...counts } = tally;
  return JSON.stringify(
    { ...facts, ...rest, ...counts },
    (_name, value) => (value instanceof Map ? Object.fromEntries(value) : value),
    2,
  );
}
