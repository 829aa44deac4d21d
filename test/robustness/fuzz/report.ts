import type { Run, RunOptions } from "./run.js";
import type { Count, Tally } from "./tally.js";

/** How a run stands. */
export function toLine({ cases, accepted, readBack }: Tally, wanted: Pick<RunOptions, "cases">): string {
  return `${cases} of ${wanted.cases} cases, ${accepted} accepted, ${readBack} read back`;
}

/** A run in plain text. */
export function toText({ tally, elapsedMs, slowest, failings }: Run, { seed }: Pick<RunOptions, "seed">): string {
  const seconds = elapsedMs / 1_000;
  return [
    `${tally.cases} cases in ${seconds.toFixed(1)} s (${(tally.cases / seconds).toFixed(0)}/s), seed ${seed}`,
    `${tally.accepted} accepted, ${tally.readBack} of them read back through another protocol`,
    `${tally.repeated} sent again with their Idempotency-Key, and answered the same`,
    `${tally.triedAgain} times the service was not ready, and was asked again`,
    `The slowest case took ${slowest.toFixed(1)} times as long as JSON.parse of the largest body`,
    section("ProtocolClients", tally.byProtocol),
    section("Operations", tally.byOperation, tally.acceptedByOperation),
    section("Kinds", tally.byKind),
    section("Outcomes", tally.byOutcome),
    failings.length === 0 ? "The run holds.\n" : `The run FAILED:\n${failings.join("\n")}\n`,
  ].join("\n");
}

/** A run for programs. */
export function toJson({ tally, elapsedMs, slowest, failings }: Run, { seed }: Pick<RunOptions, "seed">): string {
  const plain = (_name: string, value: unknown) => (value instanceof Map ? Object.fromEntries(value) : value);
  return JSON.stringify({ seed, elapsedMs, slowest, failings, ...tally }, plain, 2);
}

function section(title: string, count: Count, accepted?: Count): string {
  const rows = [...count]
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([name, number]) => {
      const more = accepted ? `, ${accepted.get(name) ?? 0} accepted` : "";
      return `  ${name.padEnd(40)}${`${number}`.padStart(7)}${more}`;
    });
  return [title, ...rows].join("\n");
}
