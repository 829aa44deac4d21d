import { mib, type RoundResult, type Sample } from "./round.js";
import { type MemoryName, memories, rule } from "./trend.js";

export function toJson(result: RoundResult, facts: object): string {
  const { tally } = result;
  const counted = {
    ...tally,
    byProtocol: Object.fromEntries(tally.byProtocol),
    byOperation: Object.fromEntries(tally.byOperation),
    unexpected: Object.fromEntries(tally.unexpected),
  };
  return JSON.stringify({ ...facts, passes: result.failings.length === 0, ...result, tally: counted }, null, 2);
}

export function toText({ seconds, tally, faults, samples, before, after, memory, failings }: RoundResult): string {
  const { calls, aborted, refused, unavailable, byProtocol, byOperation } = tally;
  const rows: [string, string][] = [
    ["duration", `${(seconds / 60).toFixed(1)} minutes`],
    ["calls", `${calls} (${(calls / seconds).toFixed(0)}/s): ${list(byProtocol)}`],
    ["operations", `${byOperation.size}: ${list(byOperation)}`],
    ["calls refused, aborted", `${refused}, ${aborted}`],
    ["faults", `${faults}; ${unavailable} calls unavailable`],
    ["heap after garbage collection", spread(samples, ({ heapBytes }) => heapBytes)],
    ["compiled code", spread(samples, ({ codeBytes }) => codeBytes)],
    ["external memory", spread(samples, ({ externalBytes }) => externalBytes)],
    ["resident memory", spread(samples, ({ rssBytes }) => rssBytes)],
    ...(Object.keys(memories) as MemoryName[]).map((name): [string, string] => {
      const { kind, bytesPerCall, uncertainty } = memory[name];
      const line = `${bytesPerCall.toFixed(2)} ± ${uncertainty.toFixed(2)} bytes a call: ${kind}`;
      return [`trend of ${memories[name].name}`, line];
    }),
    [
      "idle, after the load",
      `${after.sessions} sessions, ${after.busy} busy, ${after.waiting} statements waiting; ${resources(after.resources)}`,
    ],
    ["idle, before the load", resources(before.resources)],
  ];
  const width = Math.max(...rows.map(([name]) => name.length));
  const table = rows.map(([name, text]) => `  ${name.padEnd(width)}  ${text}`).join("\n");
  const summary =
    failings.length === 0 ? "The soak passed." : `The soak FAILED:\n${failings.map((one) => `  - ${one}`).join("\n")}`;
  return `${table}\n\n${rule}\n\n${summary}`;
}

function list(counts: ReadonlyMap<string, number>): string {
  return [...counts].map(([name, count]) => `${name} ${count}`).join(", ");
}

function resources(counts: Readonly<Record<string, number>>): string {
  return list(new Map(Object.entries(counts)));
}

/** The first, the middle and the last value. */
function spread(samples: readonly Sample[], of: (sample: Sample) => number): string {
  const chosen = [samples[0], samples[Math.floor(samples.length / 2)], samples.at(-1)];
  return `${chosen.map((sample) => (sample ? mib(of(sample)) : "?")).join(", ")} MiB (first, middle, last)`;
}
