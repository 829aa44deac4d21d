import { createHmac, timingSafeEqual } from "node:crypto";
import type { Versioned } from "./change-log.js";
import { type KeyRecord, type WorkspaceState, workspaceState } from "./key-state.js";
import { parseSnapshot, writeSnapshot } from "./snapshot.js";

/** Encodes versioned values of one kind as signed entries in Redis. */
export interface EntryCodec<T> {
  /** The Redis key of the entry. */
  keyOf(id: string): string;
  /** The entry as it is stored: encoded, and signed for this Redis key. */
  sign(id: string, versioned: Versioned<T>): string;
  /** Undefined unless a replica has signed the entry, for this Redis key and in this version of the format. */
  verify(id: string, entry: string | undefined): Versioned<T> | undefined;
}

/** The current HMAC key. It changes with the database timeline, which invalidates all existing entries. */
export type Secret = () => string;

/** Must grow with every change of the format: processes of different versions must not read each other's entries. */
const formatVersion = 5;

/** The state of a workspace, by its id. */
export function workspaceEntries(secret: Secret): EntryCodec<WorkspaceState> {
  return createCodec(secret, "latchkey:ws:", {
    encode: ({ value: { enabled, hasImports }, snapshot }) =>
      `${enabled ? "enabled" : "disabled"}${hasImports ? ",imports" : ""}@${writeSnapshot(snapshot)}`,
    decode: (text, workspaceId) => {
      const [state = "", snapshot = ""] = text.split("@");
      const [enabled, imports] = state.split(",");
      const value = workspaceState({ enabled: enabled === "enabled", hasImports: imports === "imports" });
      return { value, dependsOn: [workspaceId], workspaceId, snapshot: parseSnapshot(snapshot) };
    },
  });
}

/** The columns of a key that verification reads, by the hash of its secret. */
export function keyEntries(secret: Secret): EntryCodec<KeyRecord> {
  return createCodec(secret, "latchkey:key:", {
    encode: ({ value, dependsOn, snapshot }) =>
      JSON.stringify({ value, rows: dependsOn, asOf: writeSnapshot(snapshot) }),
    decode: (text) => {
      const { value, rows, asOf } = JSON.parse(text);
      const { expiresAt, identityCreatedAt, identityUpdatedAt } = value;
      return {
        value: {
          ...value,
          expiresAt: parseDate(expiresAt),
          identityCreatedAt: parseDate(identityCreatedAt),
          identityUpdatedAt: parseDate(identityUpdatedAt),
        },
        dependsOn: rows,
        workspaceId: value.workspaceId,
        snapshot: parseSnapshot(asOf),
      };
    },
  });
}

/**
 * Without a signature, an attacker who can write to Redis could grant any scope to a key. The HMAC distinguishes
 * entries of this service from all others. It covers the Redis key, so that an entry is not valid for another key or
 * workspace.
 */
function createCodec<T>(
  secret: Secret,
  prefix: string,
  format: { encode(versioned: Versioned<T>): string; decode(text: string, id: string): Versioned<T> },
): EntryCodec<T> {
  const signatureOf = (id: string, text: string) =>
    createHmac("sha256", secret()).update(`${formatVersion}\n${prefix}${id}\n${text}`).digest("base64url");
  return {
    keyOf: (id) => prefix + id,
    sign(id, versioned) {
      const text = format.encode(versioned);
      return `${signatureOf(id, text)}.${text}`;
    },
    verify(id, entry = "") {
      const end = entry.indexOf(".");
      const text = entry.slice(end + 1);
      const expected = Buffer.from(signatureOf(id, text));
      const given = Buffer.from(entry.slice(0, Math.max(0, end)));
      return given.length === expected.length && timingSafeEqual(given, expected) ? format.decode(text, id) : undefined;
    },
  };
}

function parseDate(text: string | null): Date | null {
  return text === null ? null : new Date(text);
}
