import { hash } from "node:crypto";
import type { IdPrefix } from "../../src/ids.js";
import { type MintedSecret, mintSecret } from "../../src/keys/secret.js";

/** Row counts. Keys and identities are distributed over the workspaces round-robin. */
export interface Numbers {
  readonly keys: number;
  readonly workspaces: number;
  /** Assigned to the keys round-robin. A multiple of `workspaces`, so a key and its identity share a workspace. */
  readonly identities?: number;
}

/** Rows that need no storage in the benchmark: each is computed from the seed and its number. */
export interface Population extends Required<Numbers> {
  workspaceId(number: number): string;
  identityId(number: number): string;
  keyId(number: number): string;
  secret(number: number): MintedSecret;
  /** The number of the workspace that a key or an identity is in. */
  workspaceOf(number: number): number;
  /** Undefined if there are no identities. */
  identityOf(key: number): number | undefined;
  /** The caller that verifies this key: the first key of its workspace. The verified keys come after the callers. */
  callerOf(key: number): number;
}

export function createPopulation(seed: string, { keys, workspaces, identities = 0 }: Numbers): Population {
  if (keys % workspaces !== 0 || identities % workspaces !== 0) {
    throw new Error("keys and identities must be multiples of the workspaces");
  }
  const randomBytes = (kind: string, number: number) => hash("sha256", `${seed} ${kind} ${number}`, "buffer");

  /** Same format as all ids, with a leading timestamp: one millisecond per row, so ids sort like numbers. */
  function id(kind: IdPrefix, number: number): string {
    let text = "";
    for (let rest = firstRowAt + number; text.length < 10; rest = Math.floor(rest / 32)) text = digit(rest) + text;
    for (const byte of randomBytes(kind, number).subarray(0, 16)) text += digit(byte);
    return `${kind}_${text}`;
  }

  return {
    keys,
    workspaces,
    identities,
    workspaceId: (number) => id("ws", number),
    identityId: (number) => id("id", number),
    keyId: (number) => id("key", number),
    secret: (number) => mintSecret("lk", randomBytes("secret", number).subarray(0, 24)),
    workspaceOf: (number) => number % workspaces,
    identityOf: (key) => (identities === 0 ? undefined : key % identities),
    callerOf: (key) => key % workspaces,
  };
}

/** Creation time of the first row. */
const firstRowAt = Date.UTC(2026, 0, 1);

function digit(value: number): string {
  return "0123456789abcdefghjkmnpqrstvwxyz".charAt(value % 32);
}
