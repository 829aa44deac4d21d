import type { RoundState } from "./round.js";
import { perSecond } from "./verdict.js";

const everyMs = 10_000;

/** Shows how a round stands: on a terminal in one line that is rewritten, elsewhere by a line every ten seconds. */
export function createProgress(stream: NodeJS.WriteStream): (state: RoundState) => void {
  let shownMs = 0;
  return (state) => {
    const line = toLine(state);
    if (stream.isTTY) stream.write(`\r\u001b[K${line.slice(0, stream.columns - 1)}`);
    else if (state.elapsedMs - shownMs >= everyMs) {
      shownMs = state.elapsedMs;
      stream.write(`${line}\n`);
    }
  };
}

function toLine({ tally, elapsedMs, faultsOn }: RoundState): string {
  const rate = perSecond(tally.judged, elapsedMs).toFixed(0);
  const parts = [
    `${(elapsedMs / 1_000).toFixed(0)} s`,
    `${tally.judged} judged (${rate}/s)`,
    `${tally.writesAcknowledged} writes`,
    `${tally.violationCount} violations`,
    faultsOn.join(", ") || "no fault",
  ];
  return parts.join(" | ");
}
