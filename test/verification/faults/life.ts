import type { WriteOutcome, Writer } from "./writer.js";

/** Long enough that every replica gets several calls about a subject after its last change. */
export const observationMs = [300, 700] as const;

/** Mostly leaves time for calls that observe the change, sometimes none. */
export async function pauseBetweenWrites(writer: Writer): Promise<void> {
  if (writer.random.chance(0.8)) await writer.pause(80, 700);
}

/**
 * After an unknown outcome, writes the same value again until it is acknowledged. From then on the register has this
 * value, whether the first attempt takes effect late or never. The subject is then observed and retired, because the
 * late attempt could overwrite the next value.
 */
export async function retryUntilAcknowledged(writer: Writer, attempt: () => Promise<WriteOutcome>): Promise<void> {
  for (let attemptsLeft = 8; attemptsLeft > 0 && writer.writing(); attemptsLeft--) {
    await writer.pause(50, 250);
    if ((await attempt()).kind !== "acknowledged") continue;
    await writer.pause(...observationMs);
    break;
  }
  writer.retire("unknown outcome");
}
