import { hash } from "node:crypto";
import { TypeID } from "typeid-js";
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

  /** A UUIDv7, as ids are: made one a millisecond, so that the order of the ids is that of the numbers. */
  function id(kind: "ws" | "id" | "key", number: number): string {
    const uuid = bytes(kind, number).subarray(0, 16);
    uuid.writeUIntBE(begun + number, 0, 6);
    uuid[6] = 0x70 | (Number(uuid[6]) & 0x0f);
    uuid[8] = 0x80 | (Number(uuid[8]) & 0x3f);
    return TypeID.fromUUIDBytes(kind, uuid).toString();
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
