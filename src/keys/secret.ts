import { hash, randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const randomLength = 33; // 24 bytes in base62
const checksumLength = 6; // 32 bits in base62
const form = new RegExp(`^([A-Za-z0-9_]{1,16}_[A-Za-z0-9]{${randomLength}})([A-Za-z0-9]{${checksumLength}})$`);

/** A secret at the one moment it is known in plain. */
export interface MintedSecret {
  /** Leaves the process once, in the answer to the caller who asked for the key. */
  readonly plaintext: string;
  /** What is stored, in hex. */
  readonly hash: string;
  /** The prefix and 4 characters, for people to recognise the key by. */
  readonly start: string;
}

/** Makes `<prefix>_<33 random characters><6 characters of checksum>`. */
export function mintSecret(prefix = "lk"): MintedSecret {
  const body = `${prefix}_${base62(BigInt(`0x${randomBytes(24).toString("hex")}`), randomLength)}`;
  const plaintext = body + checksum(body);
  return { plaintext, hash: hashSecret(plaintext), start: body.slice(0, prefix.length + 5) };
}

/** The prefix of a secret, from what people recognise it by. */
export function prefixOf(start: string): string {
  return start.slice(0, -5);
}

/** Whether a text can be one of our secrets at all. Tells typing errors from unknown keys without any lookup. */
export function isWellFormedSecret(text: string): boolean {
  const [, body, sum] = form.exec(text) ?? [];
  return body !== undefined && checksum(body) === sum;
}

/** SHA-256 in hex: the secret has 192 random bits, so nothing slower is called for. */
export function hashSecret(plaintext: string): string {
  return hash("sha256", plaintext, "hex");
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
