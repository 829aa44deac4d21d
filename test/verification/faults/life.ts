import type { WriteOutcome, Writer } from "./writer.js";

/** Long enough for every replica to be called several times about what has just been settled. */
export const watchMs = [300, 700] as const;

/** Mostly time for others to look, at times none. */
export async function pauseBetweenWrites(writer: Writer): Promise<void> {
  if (writer.random.chance(0.8)) await writer.pause(80, 700);
}

/**
 * After an unknown outcome the same is written again until it is acknowledged: from then on the register holds this
 * value, whether the first attempt takes effect late or never. It is watched, and then given up: the next other value
 * could be overwritten by that late attempt.
 */
export async function insist(writer: Writer, attempt: () => Promise<WriteOutcome>): Promise<void> {
  for (let attemptsLeft = 8; attemptsLeft > 0 && writer.writing(); attemptsLeft--) {
    await writer.pause(50, 250);
    if ((await attempt()).kind !== "acknowledged") continue;
    await writer.pause(...watchMs);
    break;
  }
  writer.retire("unknown outcome");
}
