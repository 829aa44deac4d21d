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
  if (now > time || count === mostPerMs) begin(Math.max(now, time + 1));
  count += 1;
  writeDigits(count, 14, 4);
  return `${prefix}_${text.toString("latin1")}`;
}

/** Whether a text has the form of an id with this prefix. */
export function isId(prefix: IdPrefix, text: string): boolean {
  return text.startsWith(`${prefix}_`) && /^[0-7][0-9a-hjkmnp-tv-z]{25}$/.test(text.slice(prefix.length + 1));
}

/** Crockford's base 32, in small letters. */
const alphabet = Buffer.from("0123456789abcdefghjkmnpqrstvwxyz");

/** What fits into the four digits that count. */
const mostPerMs = 32 ** 4 - 1;

/** The present id without its prefix: ten digits of time, four of them random, four that count, and eight random ones. */
const text = Buffer.alloc(26);
let time = 0;
let count = 0;

/** Random bytes are made in bulk: to ask for a few costs as much as to ask for thousands. */
const random = Buffer.alloc(4096);
let used = random.length;

/** Begins a millisecond. All but the time is random, where the count begins too: no two processes make the same. */
function begin(ms: number): void {
  time = ms;
  writeDigits(ms, 0, 10);
  for (const place of [10, 11, 12, 13, 18, 19, 20, 21, 22, 23, 24, 25]) text[place] = digit(randomByte() & 31);
  // Between random bits, the version and the variant of a UUIDv7.
  text[10] = digit(0b01110 | (randomByte() & 0b00001));
  text[13] = digit(0b01000 | (randomByte() & 0b10011));
  // In the lower half, so that there is room to count.
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
