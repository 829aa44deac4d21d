import { createHmac, timingSafeEqual } from "node:crypto";
import type { Versioned } from "./change-log.js";
import type { KeyRecord } from "./key-state.js";
import { parseSnapshot, writeSnapshot } from "./snapshot.js";

/** How a fact of one kind is written into Redis. */
export interface EntryCodec<T> {
  keyOf(id: string): string;
  /** The entry as it is stored: written, and sealed for this name. */
  sign(id: string, fact: Versioned<T>): string;
  /** Undefined for whatever was not sealed by one of us, for this name, in this form. */
  verify(id: string, entry: string | undefined): Versioned<T> | undefined;
}

/** What entries are sealed with at this moment: with the history of the database, so does what they are worth change. */
export type Secret = () => string;

/** Grows with every change of what is written below: processes of different versions do not read each other's entries. */
const version = 3;

/** Whether a workspace is enabled, by its id. */
export function workspaceEntries(secret: Secret): EntryCodec<boolean> {
  return sealed(secret, "latchkey:ws:", {
    write: ({ value, snapshot: asOf }) => `${value ? "enabled" : "disabled"}@${writeSnapshot(asOf)}`,
    read: (text, workspaceId) => {
      const [state, asOf = ""] = text.split("@");
      return { value: state === "enabled", dependsOn: [workspaceId], workspaceId, snapshot: parseSnapshot(asOf) };
    },
  });
}

/** What a key may do, by the hash of its secret. */
export function keyEntries(secret: Secret): EntryCodec<KeyRecord> {
  return sealed(secret, "latchkey:key:", {
    write: ({ value, dependsOn: rows, snapshot: asOf }) => JSON.stringify({ value, rows, asOf: writeSnapshot(asOf) }),
    read: (text) => {
      const { value, rows, asOf } = JSON.parse(text);
      const { expiresAt, identityCreatedAt, identityUpdatedAt } = value;
      return {
        value: {
          ...value,
          expiresAt: readDate(expiresAt),
          identityCreatedAt: readDate(identityCreatedAt),
          identityUpdatedAt: readDate(identityUpdatedAt),
        },
        dependsOn: rows,
        workspaceId: value.workspaceId,
        snapshot: parseSnapshot(asOf),
      };
    },
  });
}

/**
 * Whoever can write to Redis could otherwise hand himself any scope. The seal tells our entries from all others;
 * the name is part of it, so that an entry cannot speak for another key or workspace.
 */
function sealed<T>(
  secret: Secret,
  prefix: string,
  form: { write(fact: Versioned<T>): string; read(text: string, id: string): Versioned<T> },
): EntryCodec<T> {
  const sealOf = (id: string, text: string) =>
    createHmac("sha256", secret()).update(`${version}\n${prefix}${id}\n${text}`).digest("base64url");
  return {
    keyOf: (id) => prefix + id,
    sign(id, fact) {
      const text = form.write(fact);
      return `${sealOf(id, text)}.${text}`;
    },
    verify(id, entry = "") {
      const end = entry.indexOf(".");
      const text = entry.slice(end + 1);
      const seal = Buffer.from(sealOf(id, text));
      const given = Buffer.from(entry.slice(0, Math.max(0, end)));
      return given.length === seal.length && timingSafeEqual(given, seal) ? form.read(text, id) : undefined;
    },
  };
}

function readDate(text: string | null): Date | null {
  return text === null ? null : new Date(text);
}
