import type { Run, RunOptions } from "./run.js";
import type { Count, Tally } from "./tally.js";

/** The progress of a run in one line. */
export function toLine({ cases, accepted, readBack }: Tally, options: Pick<RunOptions, "cases">): string {
  return `${cases} of ${options.cases} cases, ${accepted} accepted, ${readBack} read back`;
}

/** The report in human-readable form. */
export function toText({ tally, elapsedMs, slowest, failings }: Run, { seed }: Pick<RunOptions, "seed">): string {
  const seconds = elapsedMs / 1_000;
  return [
    `${tally.cases} cases in ${seconds.toFixed(1)} s (${(tally.cases / seconds).toFixed(0)}/s), seed ${seed}`,
    `${tally.accepted} accepted, ${tally.readBack} of them read back over another protocol`,
    `${tally.repeated} retried with their Idempotency-Key, with the same response`,
    `${tally.triedAgain} retries because the service was unavailable`,
    `The slowest case took ${slowest.toFixed(1)} times as long as JSON.parse of the largest body`,
    section("Protocols", tally.byProtocol),
    section("Operations", tally.byOperation, tally.acceptedByOperation),
    section("Kinds", tally.byKind),
    section("Outcomes", tally.byOutcome),
    failings.length === 0 ? "The run passed.\n" : `The run FAILED:\n${failings.join("\n")}\n`,
  ].join("\n");
}

/** The report in machine-readable form. */
export function toJson({ tally, elapsedMs, slowest, failings }: Run, { seed }: Pick<RunOptions, "seed">): string {
  const mapToObject = (_name: string, value: unknown) => (value instanceof Map ? Object.fromEntries(value) : value);
  return JSON.stringify({ seed, elapsedMs, slowest, failings, ...tally }, mapToObject, 2);
}

function section(title: string, count: Count, accepted?: Count): string {
  const rows = [...count]
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([name, number]) => {
      const suffix = accepted ? `, ${accepted.get(name) ?? 0} accepted` : "";
      return `  ${name.padEnd(40)}${`${number}`.padStart(7)}${suffix}`;
    });
  return [title, ...rows].join("\n");
}
