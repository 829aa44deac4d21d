import { hash, randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/** The number of random bytes of a secret: never less than the first, which is the default. */
const minBytes = 24;
const maxBytes = 255;
const checksumLength = 6; // 32 bits in base62
const lengths = `{${lengthOf(minBytes)},${lengthOf(maxBytes)}}`;
const format = new RegExp(`^([A-Za-z0-9_]{1,16}_[A-Za-z0-9]${lengths})([A-Za-z0-9]{${checksumLength}})$`);

/** A new secret. Only at this moment the service knows it in plaintext. */
export interface MintedSecret {
  /** Returned once, in the response to the caller that created the key. */
  readonly plaintext: string;
  /** The stored hash, in hex. */
  readonly hash: string;
  /** The prefix and 4 characters, for people to recognise the key by. */
  readonly start: string;
}

/**
 * Creates `<prefix>_<33 random characters><6 characters of checksum>`, with more random characters for more than 24 random
 * bytes: at most 366 characters.
 */
export function mintSecret(prefix = "lk", random: Buffer = randomBytes(minBytes)): MintedSecret {
  const body = `${prefix}_${base62(BigInt(`0x${random.toString("hex")}`), lengthOf(random.length))}`;
  const plaintext = body + checksum(body);
  return { plaintext, hash: hashSecret(plaintext), start: body.slice(0, prefix.length + 5) };
}

/** Random bytes for a secret: as many as were asked for, but never less than 24. */
export function randomBytesOf(requested = minBytes): Buffer {
  return randomBytes(Math.max(minBytes, requested));
}

/** The prefix of a secret, from its `start`. Undefined if the key was imported. */
export function prefixOf(start: string): string | undefined {
  return start === "" ? undefined : start.slice(0, -5);
}

/** Whether a text has the format and checksum of a secret. Detects typing errors without a lookup. */
export function isWellFormedSecret(text: string): boolean {
  const [, body, sum] = format.exec(text) ?? [];
  return body !== undefined && checksum(body) === sum;
}

/** SHA-256. The secret has 192 random bits, so a slow password hash is unnecessary. */
export function hashSecret(plaintext: string, encoding: "hex" | "binary" = "hex"): string {
  return hash("sha256", plaintext, encoding);
}

/** The number of base62 digits of this many bytes. */
function lengthOf(bytes: number): number {
  return Math.ceil((bytes * 8) / Math.log2(62));
}

function checksum(body: string): string {
  let digits = "";
  for (let rest = crc32(body); digits.length < checksumLength; rest = Math.floor(rest / 62)) {
    digits = alphabet.charAt(rest % 62) + digits;
  }
  return digits;
}

function base62(value: bigint, length: number): string {
  let digits = "";
  for (let rest = value; rest > 0n; rest /= 62n) digits = alphabet.charAt(Number(rest % 62n)) + digits;
  return digits.padStart(length, "0");
}
