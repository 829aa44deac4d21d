import type { CheckedCall, Violation } from "./checker.js";
import { disableLatency, latencyOf } from "./figures.js";
import { perSecond } from "./findings.js";
import type { RoundState } from "./round.js";
import { type Count, total } from "./tally.js";

/** What a report contains in addition to the state of the round. */
export interface ReportFacts {
  readonly seed: number;
  readonly replicas: number;
  readonly design: string;
  /** The version of PostgreSQL. */
  readonly postgres: string;
  /** The share of one core that the test process used. */
  readonly ownCpu: number;
  readonly failings: readonly string[];
}

/** The progress line of a round. */
export function toLine({ tally, elapsedMs, activeFaults }: RoundState): string {
  const rate = perSecond(tally.checked, elapsedMs).toFixed(0);
  const parts = [
    `${tally.checked} calls checked (${rate}/s)`,
    `${tally.local} local`,
    `${tally.writesAcknowledged} writes acknowledged`,
    `${tally.violationCount} violations`,
    activeFaults.join(", ") || "no active fault",
  ];
  return parts.join(" | ");
}

/** The report of a round as plain text. */
export function toText(state: RoundState, facts: ReportFacts): string {
  const { tally, elapsedMs, faultsActiveMs } = state;
  const latency = [...disableLatency(tally)].map(
    ([name, { count, p50, p99, max }]) =>
      `  ${name.padEnd(36)}${cell(count)}${cell(p50.toFixed(0))}${cell(p99.toFixed(0))}${cell(max.toFixed(0))}`,
  );
  const latencyHeader = `${cell("count").padStart(16)}${cell("p50")}${cell("p99")}${cell("max")}`;
  const unusable = total(tally.callsByProtocol) - tally.checked;
  const bounds = latencyOf(tally.boundsMs);
  return [
    section("Round", [
      ["seed", facts.seed],
      ["design", facts.design],
      ["PostgreSQL", facts.postgres],
      [
        "duration",
        `${(elapsedMs / 1_000).toFixed(1)} s, of which ${(faultsActiveMs / 1_000).toFixed(1)} s with faults`,
      ],
      ["replicas", facts.replicas],
      ["clocks at the end", state.clocks.join(", ")],
      ["replicas that exited unexpectedly", state.crashes],
      ["CPU of the test process", `${(facts.ownCpu * 100).toFixed(0)} % of a core`],
    ]),
    section("Calls", [
      ...sorted(tally.callsByProtocol),
      ["total", total(tally.callsByProtocol)],
      ["checked", tally.checked],
      ["without a usable response", `${unusable} (${((unusable / total(tally.callsByProtocol)) * 100).toFixed(1)} %)`],
      ["checked per second", perSecond(tally.checked, elapsedMs).toFixed(0)],
      ["checked per second during faults", perSecond(tally.checkedDuringFaults, faultsActiveMs).toFixed(0)],
    ]),
    section("Verifiers", [
      ["verified locally", tally.local],
      ["verified locally per second", perSecond(tally.local, elapsedMs).toFixed(0)],
      ["… during faults", perSecond(tally.localDuringFaults, faultsActiveMs).toFixed(0)],
      ["verified by the service", tally.askedByVerifiers],
      ...sorted(tally.verifierResults),
    ]),
    section("Results", sorted(tally.results)),
    section("Results of calls with a delayed body", [
      ...sorted(tally.delayedResults),
      ["refused after their deadline", tally.refusedAfterDeadline],
    ]),
    section("Changes in the audit events", [["made with keys, and checked", tally.effects]]),
    section("Unavailable", sorted(tally.unavailable)),
    section("Unexpected results", sorted(tally.unexpected)),
    section("Faults", sorted(tally.faults)),
    section("Time from the resumption of a suspended replica until its calls are checked strictly, ms", [
      ["median", bounds.p50.toFixed(0)],
      ["maximum", bounds.max.toFixed(0)],
    ]),
    section("Writes", sorted(tally.writes)),
    section("Retired subjects", sorted(tally.retired)),
    `Latency of disableWorkspace, ms ${latencyHeader}\n${latency.join("\n")}\n`,
    `Violations: ${tally.violationCount}\n`,
    ...tally.violations.slice(0, 3).map(toHistory),
    facts.failings.length === 0 ? "The round passed." : `The round FAILED: ${facts.failings.join("; ")}.`,
  ].join("\n");
}

/** The report of a round as JSON. */
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

/** The writes and calls of a subject before a violation, in milliseconds relative to the wrong call. */
export function toHistory({ call, subject, register, observed, writes, callsBefore, faults }: Violation): string {
  const since = (at: number) => (Number.isFinite(at) ? `${(at - call.begin).toFixed(1)}` : "…");
  const span = ({ begin, end }: { begin: number; end: number }) => `[${since(begin)}, ${since(end)}]`.padEnd(22);
  const describeCall = (each: CheckedCall) => `${span(each)}call   ${each.label}`;
  const events = [
    ...writes.slice(-6).map((write) => ({
      at: write.begin,
      line: `${span(write)}write  ${register} = ${write.value}, ${write.outcome}`,
    })),
    ...callsBefore.map((each) => ({ at: each.begin, line: describeCall(each) })),
    { at: call.begin, line: `${describeCall(call)}   <- observed ${register} = ${observed}` },
  ];
  const lines = events.toSorted((a, b) => a.at - b.at).map(({ line }) => `  ${line}`);
  return `${subject}, active faults: ${faults?.join(", ") || "none"}\n${lines.join("\n")}\n`;
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
