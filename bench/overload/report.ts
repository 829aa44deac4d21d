import type { Machine } from "../machine.js";
import { promises } from "./guarantees.js";
import type { Measured, Phase } from "./measure.js";

export interface OverloadReport {
  readonly machine: Machine;
  readonly seconds: number;
  readonly measured: readonly Measured[];
  readonly failings: readonly string[];
}

export function toJson(report: OverloadReport): string {
  return JSON.stringify({ ...report, promises }, null, 2);
}

/** The report in human-readable form. */
export function toText({ machine, seconds, measured, failings }: OverloadReport): string {
  const { date, cpu, system } = machine;
  const lines = measured.flatMap(({ title, capacity, ...phases }) => [
    "",
    `${title}: ${Math.round(capacity)} calls/s in a closed loop`,
    row("offered/s", "served/s", "refused/s", "p50, ms", "p99, ms", "memory, MiB"),
    ...[phases.busy, phases.half, phases.overload, phases.afterwards].map(phaseRow),
  ]);
  const result = failings.length === 0 ? ["All guarantees hold."] : failings.map((failing) => `FAILED  ${failing}`);
  return [`${date}, ${cpu}, ${system}; ${seconds} seconds each`, ...lines, "", ...result].join("\n");
}

function phaseRow({ share, offeredPerSecond, servedPerSecond, shedPerSecond, p50, p99, memory }: Phase): string {
  const offered = `${Math.round(offeredPerSecond)} (${share === undefined ? "closed loop" : `${share}×`})`;
  const rates = [servedPerSecond, shedPerSecond].map((rate) => `${Math.round(rate)}`);
  const resident = `${Math.round(Math.min(...memory))} – ${Math.round(Math.max(...memory))}`;
  return row(offered, ...rates, p50.toFixed(1), p99.toFixed(1), resident);
}

function row(...cells: string[]): string {
  return cells.map((cell) => cell.padStart(14)).join("");
}
