import type { Tally } from "./tally.js";

const everyMs = 5_000;

/** Shows how a run stands, by a line every few seconds. */
export function createProgress(stream: NodeJS.WriteStream, cases: number): (tally: Tally) => void {
  let shownAt = performance.now();
  return (tally) => {
    if (performance.now() - shownAt < everyMs) return;
    shownAt = performance.now();
    stream.write(`${tally.cases} of ${cases} cases, ${tally.accepted} accepted, ${tally.readBack} read back\n`);
  };
}
