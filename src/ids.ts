// Written by hand, because every call generates an id. typeid-js generates the same ids, but takes several times as
// long.
import { randomFillSync } from "node:crypto";

/** The prefixes of ids, one per kind of resource. */
export type IdPrefix = "ws" | "key" | "id" | "api" | "role" | "perm" | "rl" | "ovr" | "req" | "evt";

/**
 * A new id: the prefix and a UUIDv7 in 26 characters (the TypeID format). Ids sort by creation time. The ids of one
 * process are also in order within a millisecond.
 */
export function mintId(prefix: IdPrefix): string {
  const now = Date.now();
  if (now > time || count === maxCount) startMillisecond(Math.max(now, time + 1));
  count += 1;
  writeDigits(count, 14, 4);
  return `${prefix}_${text.toString("latin1")}`;
}

/** Whether a text has the format of an id with this prefix. */
export function isId(prefix: IdPrefix, text: string): boolean {
  return text.startsWith(`${prefix}_`) && /^[0-7][0-9a-hjkmnp-tv-z]{25}$/.test(text.slice(prefix.length + 1));
}

/** Crockford's base 32, in lower case. */
const alphabet = Buffer.from("0123456789abcdefghjkmnpqrstvwxyz");

/** The maximum of the counter, which has four digits. */
const maxCount = 32 ** 4 - 1;

/** The current id without its prefix: ten digits of time, four random digits, four of the counter, eight random. */
const text = Buffer.alloc(26);
let time = 0;
let count = 0;

/** Random bytes are generated in bulk, because a few cost as much as thousands. */
const random = Buffer.alloc(4096);
let used = random.length;

/**
 * Starts a new millisecond. Everything but the time is random, including the start of the counter, so that two
 * processes do not generate the same id.
 */
function startMillisecond(ms: number): void {
  time = ms;
  writeDigits(ms, 0, 10);
  for (const place of [10, 11, 12, 13, 18, 19, 20, 21, 22, 23, 24, 25]) text[place] = digit(randomByte() & 31);
  // The version and the variant of a UUIDv7, between random bits.
  text[10] = digit(0b01110 | (randomByte() & 0b00001));
  text[13] = digit(0b01000 | (randomByte() & 0b10011));
  // In the lower half of the range, so that the counter has room to grow.
  count = (randomByte() << 11) | (randomByte() << 3);
}

function writeDigits(value: number, from: number, length: number): void {
  let rest = value;
  for (let place = from + length - 1; place >= from; place--) {
    text[place] = digit(rest % 32);
    rest = Math.floor(rest / 32);
  }
}

function digit(value: number): number {
  return alphabet[value] as number;
}

function randomByte(): number {
  if (used === random.length) {
    randomFillSync(random);
    used = 0;
  }
  return random[used++] as number;
}
