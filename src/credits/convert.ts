import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Credits as CreditsMessage, CreditsRefill, CreditsSchema } from "../../gen/latchkey/v1/credits_pb.js";
import { invalidInput } from "../errors.js";
import type { Credits, CreditsChanges, Refill } from "./store.js";

/** Converts stored credits to their message; without any, an empty one. */
export function toCredits(credits: Credits | null): MessageInitShape<typeof CreditsSchema> {
  if (credits === null) return {};
  const { remaining, refill } = credits;
  return {
    remaining: BigInt(remaining),
    ...(refill && { refill: { ...refill, amount: BigInt(refill.amount) } }),
  };
}

/** The credits of a new key; null if it needs none. */
export function fromCredits(message: CreditsMessage | undefined): Credits | null {
  if (message?.remaining === undefined) return null;
  const { remaining, refill } = message;
  return { remaining: Number(remaining), ...(refill && { refill: fromRefill(refill) }) };
}

/**
 * The changes of an update whose mask has these paths. Undefined if it changes no credits, null if the key needs none any
 * more.
 */
export function toCreditsChanges(
  changed: ReadonlySet<string>,
  message: CreditsMessage | undefined,
): CreditsChanges | null | undefined {
  const isChanged = (field: string) => changed.has("credits") || changed.has(`credits.${field}`);
  const remaining = isChanged("remaining") ? (message?.remaining ?? null) : undefined;
  const refill = isChanged("refill") ? (message?.refill ?? null) : undefined;
  if (remaining === undefined && refill === undefined) return undefined;
  if (remaining === null && refill) throw refillWithoutCredits();
  if (remaining === null) return null;
  return {
    ...(remaining !== undefined && { remaining: { operation: "set", value: Number(remaining) } }),
    ...(refill !== undefined && { refill: refill && fromRefill(refill) }),
  };
}

/** The changes of a key with or without credits. Throws if they need credits, and the key has none. */
export function creditsChangesOf(hasCredits: boolean, changes: CreditsChanges | null): CreditsChanges | null {
  if (hasCredits || changes === null || changes.remaining !== undefined) return changes;
  if (changes.refill) throw refillWithoutCredits();
  return null;
}

function refillWithoutCredits() {
  const message = "must be set: the key has no credits that could be refilled";
  return invalidInput([{ location: "credits.remaining", message }]);
}

function fromRefill({ interval, amount, refillDay }: CreditsRefill): Refill {
  if (interval === "daily") return { interval, amount: Number(amount) };
  return { interval: "monthly", amount: Number(amount), refillDay: refillDay ?? 1 };
}
