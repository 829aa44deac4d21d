import { hash } from "node:crypto";
import type { IdPrefix } from "../../src/ids.js";
import { type MintedSecret, mintSecret } from "../../src/keys/secret.js";

/** How many there are of each. Keys and identities are dealt out to the workspaces in turn. */
export interface Numbers {
  readonly keys: number;
  readonly workspaces: number;
  /** Shared by the keys in turn; a multiple of the workspaces, so that a key and its identity are in the same one. */
  readonly identities?: number;
}

/** Rows that nobody has to remember: each is computed from the seed and its number, by whoever needs it. */
export interface Population extends Required<Numbers> {
  workspaceId(number: number): string;
  identityId(number: number): string;
  keyId(number: number): string;
  secret(number: number): MintedSecret;
  /** The number of the workspace that a key or an identity is in. */
  workspaceOf(number: number): number;
  /** Undefined if there are no identities. */
  identityOf(key: number): number | undefined;
  /** The key of its workspace that asks about this one: the first of them. The keys that are asked about come after. */
  callerOf(key: number): number;
}

export function createPopulation(seed: string, { keys, workspaces, identities = 0 }: Numbers): Population {
  if (keys % workspaces !== 0 || identities % workspaces !== 0) {
    throw new Error("keys and identities must be multiples of the workspaces");
  }
  const bytes = (kind: string, number: number) => hash("sha256", `${seed} ${kind} ${number}`, "buffer");

  /** In the form of all ids, with a time in front: one a millisecond, so that the order of ids is that of numbers. */
  function id(kind: IdPrefix, number: number): string {
    let text = "";
    for (let rest = begun + number; text.length < 10; rest = Math.floor(rest / 32)) text = digit(rest) + text;
    for (const byte of bytes(kind, number).subarray(0, 16)) text += digit(byte);
    return `${kind}_${text}`;
  }

  return {
    keys,
    workspaces,
    identities,
    workspaceId: (number) => id("ws", number),
    identityId: (number) => id("id", number),
    keyId: (number) => id("key", number),
    secret: (number) => mintSecret("lk", bytes("secret", number).subarray(0, 24)),
    workspaceOf: (number) => number % workspaces,
    identityOf: (key) => (identities === 0 ? undefined : key % identities),
    callerOf: (key) => key % workspaces,
  };
}

/** When the first row was made. */
const begun = Date.UTC(2026, 0, 1);

function digit(value: number): string {
  return "0123456789abcdefghjkmnpqrstvwxyz".charAt(value % 32);
}
