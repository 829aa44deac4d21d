import type { JudgedCall, Violation } from "./checker.js";
import { disableLatency, latencyOf } from "./figures.js";
import type { RoundState } from "./round.js";
import { type Count, total } from "./tally.js";
import { perSecond } from "./verdict.js";

/** What a report tells beside the round itself. */
export interface ReportFacts {
  readonly seed: number;
  readonly replicas: number;
  readonly design: string;
  /** The version of PostgreSQL. */
  readonly postgres: string;
  /** The share of one core that the laboratory's own process took. */
  readonly ownCpu: number;
  readonly failings: readonly string[];
}

/** How a round stands. */
export function toLine({ tally, elapsedMs, faultsOn }: RoundState): string {
  const rate = perSecond(tally.judged, elapsedMs).toFixed(0);
  const parts = [
    `${tally.judged} judged (${rate}/s)`,
    `${tally.writesAcknowledged} writes`,
    `${tally.violationCount} violations`,
    faultsOn.join(", ") || "no fault",
  ];
  return parts.join(" | ");
}

/** A round in plain text. */
export function toText(state: RoundState, facts: ReportFacts): string {
  const { tally, elapsedMs, faultsOnMs } = state;
  const latency = [...disableLatency(tally)].map(
    ([name, { count, p50, p99, max }]) =>
      `  ${name.padEnd(36)}${cell(count)}${cell(p50.toFixed(0))}${cell(p99.toFixed(0))}${cell(max.toFixed(0))}`,
  );
  const lost = total(tally.callsByProtocol) - tally.judged;
  const bounds = latencyOf(tally.boundsMs);
  return [
    section("Round", [
      ["seed", facts.seed],
      ["design", facts.design],
      ["PostgreSQL", facts.postgres],
      ["duration", `${(elapsedMs / 1_000).toFixed(1)} s, of which ${(faultsOnMs / 1_000).toFixed(1)} s with faults`],
      ["replicas", facts.replicas],
      ["their clocks in the end", state.clocks.join(", ")],
      ["replicas that ended by themselves", state.crashes],
      ["CPU of the laboratory itself", `${(facts.ownCpu * 100).toFixed(0)} % of a core`],
    ]),
    section("Calls", [
      ...sorted(tally.callsByProtocol),
      ["all", total(tally.callsByProtocol)],
      ["judged", tally.judged],
      ["without a usable answer", `${lost} (${((lost / total(tally.callsByProtocol)) * 100).toFixed(1)} %)`],
      ["judged per second", perSecond(tally.judged, elapsedMs).toFixed(0)],
      ["judged per second, with faults on", perSecond(tally.judgedWhileFaultsOn, faultsOnMs).toFixed(0)],
    ]),
    section("Answers", sorted(tally.words)),
    section("Answers to late bodies", [...sorted(tally.lateWords), ["overdue", tally.overdue]]),
    section("Effects", [["made with keys, and judged", tally.effects]]),
    section("No judgement", sorted(tally.unavailable)),
    section("Unexpected answers", sorted(tally.unexpected)),
    section("Faults", sorted(tally.faults)),
    section("After a suspend, ms until calls are judged strictly", [
      ["median", bounds.p50.toFixed(0)],
      ["longest", bounds.max.toFixed(0)],
    ]),
    section("Writes", sorted(tally.writes)),
    section("Subjects given up", sorted(tally.retired)),
    `Latency of disableWorkspace, ms ${cell("count").padStart(16)}${cell("p50")}${cell("p99")}${cell("max")}\n${latency.join("\n")}\n`,
    `Violations: ${tally.violationCount}\n`,
    ...tally.violations.slice(0, 3).map(toHistory),
    facts.failings.length === 0 ? "The round holds." : `The round FAILED: ${facts.failings.join("; ")}.`,
  ].join("\n");
}

/** A round for programs. */
export function toJson(state: RoundState, facts: ReportFacts): string {
  const { tally, ...rest } = state;
  const { disables: _samples, boundsMs, ...counts } = tally;
  const latencyOfDisable = disableLatency(tally);
  return JSON.stringify(
    { ...facts, ...rest, ...counts, latencyOfDisable, boundsMs: latencyOf(boundsMs) },
    (_name, value) => (value instanceof Map ? Object.fromEntries(value) : value),
    2,
  );
}

/** The history of a subject around a violation, in milliseconds relative to the call that is wrong. */
export function toHistory({ call, subject, register, observed, writes, callsBefore, faults }: Violation): string {
  const since = (at: number) => (Number.isFinite(at) ? `${(at - call.begin).toFixed(1)}` : "…");
  const span = ({ begin, end }: { begin: number; end: number }) => `[${since(begin)}, ${since(end)}]`.padEnd(22);
  const tellCall = (each: JudgedCall) => `${span(each)}call   ${each.label}`;
  const events = [
    ...writes.slice(-6).map((write) => ({
      at: write.begin,
      line: `${span(write)}write  ${register} = ${write.value}, ${write.outcome}`,
    })),
    ...callsBefore.map((each) => ({ at: each.begin, line: tellCall(each) })),
    { at: call.begin, line: `${tellCall(call)}   <- saw ${register} = ${observed}` },
  ];
  const lines = events.toSorted((a, b) => a.at - b.at).map(({ line }) => `  ${line}`);
  return `${subject}, while these faults were on: ${faults?.join(", ") || "none"}\n${lines.join("\n")}\n`;
}

export function section(title: string, rows: readonly (readonly [string, unknown])[]): string {
  if (rows.length === 0) return `${title}: none\n`;
  return `${title}\n${rows.map(([name, value]) => `  ${name.padEnd(40)}${value}`).join("\n")}\n`;
}

export function sorted(count: Count): [string, number][] {
  return [...count].toSorted(([a], [b]) => a.localeCompare(b));
}

function cell(value: unknown): string {
  return `${value}`.padStart(8);
}
