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

/** Everything that is wrong with a run; nothing if it has shown what it is to show. */
export function findFailings(
  { tally, promotions, lost, audited, crashes, cancelled }: RunState,
  rounds: number,
): string[] {
  const failings: string[] = [];
  if (lost > 0) failings.push(`${lost} workspaces or keys are not as an acknowledged change left them`);
  if (tally.violationCount > 0) failings.push(`${tally.violationCount} violations`);
  if (promotions < rounds) failings.push(`only ${promotions} of ${rounds} promotions happened`);
  if (tally.writesAcknowledged < 10 * promotions || audited < 10 * promotions) failings.push("too few changes to tell");
  if (cancelled === 0) failings.push("no commit waited for the standby, so none was cancelled");
  if (tally.unexpected.size > 0) failings.push(`unexpected answers: ${[...tally.unexpected.keys()].join(", ")}`);
  if (crashes > 0) failings.push(`replicas ended by themselves ${crashes} times`);
  return failings;
}

/** A run in plain text. */
export function toText(state: RunState, { seed, design, postgres, failings }: ReportFacts): string {
  const { tally, promotions, cancelled, subjects, audited, lost, awayMs, crashes } = state;
  const away = awayMs.map((ms) => ms.toFixed(0)).join(", ");
  return [
    section("Run", [
      ["seed", seed],
      ["design", design],
      ["PostgreSQL", postgres],
      ["primaries lost, standbys promoted", promotions],
      ["from the loss to the next answer, ms", away || "none"],
      ["commits whose wait was cancelled", cancelled],
      ["replicas that ended by themselves", crashes],
    ]),
    section("Changes", [["acknowledged", tally.writesAcknowledged], ...sorted(tally.writes)]),
    section("Calls meanwhile", [
      ...sorted(tally.callsByProtocol),
      ["all", total(tally.callsByProtocol)],
      ["judged", tally.judged],
      ["without judgement", total(tally.unavailable)],
      ...sorted(tally.unexpected).map(([what, count]) => [`unexpected: ${what}`, count] as const),
    ]),
    section("After the promotions", [
      ["workspaces and keys", subjects],
      ["looked at, each after every promotion", audited],
      ["of them without an acknowledged change", lost],
      ["violations, in calls meanwhile, too", tally.violationCount],
    ]),
    ...tally.violations.slice(0, 3).map(toHistory),
    failings.length === 0 ? "The run holds." : `The run FAILED: ${failings.join("; ")}.`,
  ].join("\n");
}

/** A run for programs. */
export function toJson({ tally, ...rest }: RunState, facts: ReportFacts): string {
  const { disables: _samples, ...counts } = tally;
  return JSON.stringify(
    { ...facts, ...rest, ...counts },
    (_name, value) => (value instanceof Map ? Object.fromEntries(value) : value),
    2,
  );
}
