// By hand, because every call mints an id: typeid-js, which makes the same ones, takes several times as long.
import { randomFillSync } from "node:crypto";

/** What each prefix stands for. */
export type IdPrefix = "ws" | "key" | "id" | "req" | "evt";

/**
 * A new id: the prefix and a UUIDv7 in 26 characters (the TypeID form). Ids sort by the time of their making, those of
 * one process also within a millisecond.
 */
export function mintId(prefix: IdPrefix): string {
  const now = Date.now();
  if (now > moment.ms || moment.count === mostPerMs) moment = begin(Math.max(now, moment.ms + 1));
  moment.count += 1;
  return `${prefix}_${moment.start}${digits(moment.count, 4)}${randomDigits(8)}`;
}

/** Whether a text has the form of an id with this prefix. */
export function isId(prefix: IdPrefix, text: string): boolean {
  return text.startsWith(`${prefix}_`) && /^[0-7][0-9a-hjkmnp-tv-z]{25}$/.test(text.slice(prefix.length + 1));
}

/** Crockford's base 32, in small letters. */
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz";

/** Every two digits, so that a text is put together from few parts. */
const pairs = [...alphabet].flatMap((one) => [...alphabet].map((other) => one + other));

/** What fits into the four characters that count. */
const mostPerMs = 32 ** 4 - 1;

/** What the ids of one millisecond have in common, and how far they are counted. */
interface Moment {
  readonly ms: number;
  readonly start: string;
  count: number;
}

/** A count begins at random, in the lower half, so that neither processes nor milliseconds are alike. */
function begin(ms: number): Moment {
  // Of the 48 bits of time, ten characters; then the version and variant of a UUIDv7 between random bits.
  const start =
    digits(ms, 10) +
    alphabet.charAt(0b01110 | (randomByte() & 0b00001)) +
    randomDigits(2) +
    alphabet.charAt(0b01000 | (randomByte() & 0b10011));
  return { ms, start, count: ((randomByte() << 11) | (randomByte() << 3)) & 0x7ffff };
}

function digits(value: number, length: number): string {
  let text = "";
  for (let rest = value; text.length < length; rest = Math.floor(rest / 1024)) text = pairs[rest % 1024] + text;
  return text;
}

function randomDigits(length: number): string {
  let text = "";
  while (text.length < length) text += pairs[((randomByte() & 3) << 8) | randomByte()];
  return text;
}

/** Asked for in bulk: each request to the system's source costs as much as thousands of bytes. */
const pool = Buffer.alloc(8 * 1024);
let used = pool.length;

function randomByte(): number {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  return pool[used++] as number;
}

let moment = begin(Date.now());
