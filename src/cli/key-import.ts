import { readFileSync } from "node:fs";
import { create, fromJson, type JsonObject, type JsonValue, toBinary } from "@bufbuild/protobuf";
import type { Command } from "commander";
import {
  type ImportedKey,
  ImportedKeySchema,
  type MigrateKeysResponse,
  MigrateKeysResponseSchema,
} from "../../gen/latchkey/v1/keys_service_pb.js";
import type { ClientConfig } from "../config.js";
import { UserError } from "../errors.js";
import { type CreateFlags, callAction, createCommand, createOptions } from "./command.js";
import { Conflict } from "./exit-codes.js";
import { printable, writeTable } from "./output.js";

/** The maximum number of keys in one call. */
const maxBatchSize = 100;

/**
 * The maximum size of several keys in one call, as protobuf. A request may have 128 KiB and 16,384 values, and a value of `meta`
 * takes at least four bytes. A single key that is valid may be larger.
 */
const maxBatchBytes = 60 * 1024;

interface ImportFlags extends CreateFlags {
  readonly migrationId: string;
  readonly api?: string;
}

/** `latchkey key import`. */
export function importCommand(config: ClientConfig): Command {
  /** The error that ended the import after a part of it. */
  let failure: unknown;
  return createCommand("import", "import keys of another service by the hashes of their secrets")
    .argument("<file>", "a JSON file: a list of keys as keys.migrateKeys takes them, of any length")
    .requiredOption("--migration-id <label>", "a label for the import, recorded in the audit events")
    .option("--api <apiId>", "the API that the keys will belong to")
    .action(
      callAction(config, {
        role: "key",
        response: MigrateKeysResponseSchema,
        async call({ keys: service }, { migrationId, api: apiId, idempotencyKey }: ImportFlags, file) {
          const all = create(MigrateKeysResponseSchema);
          for (const [index, keys] of batchesOf(readKeys(file)).entries()) {
            // Each call needs an idempotency key of its own.
            const options = createOptions(
              idempotencyKey === undefined ? {} : { idempotencyKey: `${idempotencyKey} ${index}` },
            );
            try {
              const { migrated, failed } = await service.migrateKeys({ migrationId, apiId, keys }, options);
              all.migrated.push(...migrated);
              all.failed.push(...failed);
            } catch (error) {
              if (index === 0) throw error;
              failure = error; // thrown once the stored keys are printed: a repetition would not return their ids
              break;
            }
          }
          return all;
        },
        show: (result) => writeTable(rowsOf(result), columns),
        afterPrint: ({ failed }) => {
          if (failure !== undefined) throw failure;
          if (failed.length > 0) throw new Conflict();
        },
      }),
    );
}

const columns = {
  HASH: ({ hash }: Row) => hash,
  "KEY ID": ({ keyId }: Row) => keyId,
  RESULT: ({ keyId }: Row) => (keyId === undefined ? "exists already" : "imported"),
};

interface Row {
  readonly hash: string;
  readonly keyId?: string;
}

function rowsOf({ migrated, failed }: MigrateKeysResponse): Row[] {
  return [...migrated, ...failed.map((hash) => ({ hash }))];
}

/** The keys in their order, divided so that a call can take each part. */
function batchesOf(keys: readonly ImportedKey[]): ImportedKey[][] {
  const batches: ImportedKey[][] = [];
  let bytes = 0;
  for (const key of keys) {
    const size = toBinary(ImportedKeySchema, key).length;
    const batch = batches.at(-1);
    bytes += size;
    if (batch !== undefined && batch.length < maxBatchSize && bytes <= maxBatchBytes) {
      batch.push(key);
    } else {
      batches.push([key]);
      bytes = size;
    }
  }
  return batches;
}

function readKeys(file: string): ImportedKey[] {
  const json = parse(file);
  if (!Array.isArray(json) || json.length === 0) throw new UserError(`${file} must contain a JSON array of keys.`);
  return json.map((key, index) => {
    try {
      return fromJson(ImportedKeySchema, withTimestamp(key));
    } catch (cause) {
      throw new UserError(`${file}: the key at position ${index} is not valid: ${messageOf(cause)}`, {
        cause,
      });
    }
  });
}

function parse(file: string): JsonValue {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch (cause) {
    throw new UserError(`${file} must be a readable file with JSON: ${messageOf(cause)}`, { cause });
  }
}

/** The HTTP interface has times in milliseconds, and ProtoJSON has them as text. The file may have either. */
function withTimestamp(key: JsonValue): JsonValue {
  const { expires } = key as JsonObject;
  return typeof expires === "number" ? { ...(key as JsonObject), expires: new Date(expires).toISOString() } : key;
}

/** It may quote the file, which comes from another service. */
function messageOf(cause: unknown): string {
  return printable(cause instanceof Error ? cause.message : String(cause));
}
