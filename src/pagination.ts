import { crc32 } from "node:zlib";
import { invalidInput } from "./errors.js";
import { type IdPrefix, isId } from "./ids.js";

/** The paginated lists, and the prefixes of their ids. A cursor of one list is not valid for another. */
const prefixes = {
  keys: "key",
  identities: "id",
  apis: "api",
  roles: "role",
  permissions: "perm",
  workspaces: "ws",
  events: "evt",
  overrides: "ovr",
} satisfies Record<string, IdPrefix>;
export type ListName = keyof typeof prefixes;

/** The query of a store: rows with an id above `after`, one more than `limit`. */
export interface PageRequest {
  readonly limit: number;
  readonly after: string;
}

/** Reads the page of a list request: at most `limit` rows (default 100) after the cursor. */
export function parsePageRequest(list: ListName, request: { limit?: number; cursor?: string }): PageRequest {
  return {
    limit: request.limit ?? 100,
    after: request.cursor === undefined ? "" : readCursor(list, request.cursor),
  };
}

/**
 * Builds a page and its cursor. Drops the over-fetched row, and the rows that would exceed the maximum page size.
 *
 * @param scannedTo the id of the last row that the query examined, if it stopped before the end of the list
 */
export function buildPage<Row>(
  list: ListName,
  page: PageRequest,
  rows: readonly Row[],
  idOf: (row: Row) => string,
  scannedTo?: string,
) {
  const pageRows = rows.slice(0, Math.min(page.limit, countWithinMaxSize(rows)));
  const last = pageRows.at(-1);
  const next = rows.length > pageRows.length && last !== undefined ? idOf(last) : scannedTo;
  return { rows: pageRows, pagination: { hasMore: next !== undefined, cursor: next && writeCursor(list, next) } };
}

/**
 * gRPC clients accept 4 MiB per message by default, so pages are cut below that on every protocol. Limiting stored
 * `meta` instead would mean a limit five times smaller, only for a page of worst-case rows.
 */
export const maxPageBytes = 4_000_000;

/** How many of the rows fit into a page: at least one. No row is larger than a tenth of a page. */
function countWithinMaxSize(rows: readonly unknown[]): number {
  let bytes = 0;
  const firstTooMany = rows.findIndex((row) => {
    bytes += maxEncodedBytes(row);
    return bytes > maxPageBytes;
  });
  return firstTooMany === -1 ? rows.length : Math.max(1, firstTooMany);
}

/**
 * An upper bound for the bytes of a value in protobuf, with tags and lengths. JSON in a Struct has the most of these.
 */
function maxEncodedBytes(value: unknown): number {
  if (typeof value === "string") return 12 + Buffer.byteLength(value);
  if (typeof value !== "object" || value === null || value instanceof Date) return 12;
  if (Array.isArray(value)) return value.reduce<number>((sum, item) => sum + maxEncodedBytes(item), 12);
  return Object.entries(value).reduce(
    (sum, [name, item]) => sum + 16 + Buffer.byteLength(name) + maxEncodedBytes(item),
    12,
  );
}

/** Opaque to callers: the list and the last id of the page, with a checksum that detects other text. */
function writeCursor(list: ListName, lastId: string): string {
  const text = `${list}:${lastId}`;
  return Buffer.from(`${checksum(text)}:${text}`).toString("base64url");
}

function readCursor(list: ListName, cursor: string): string {
  const text = Buffer.from(cursor, "base64url").toString("latin1");
  const [, name, lastId] = text.split(":");
  if (lastId === undefined || name !== list || !isId(prefixes[list], lastId) || writeCursor(list, lastId) !== cursor) {
    throw invalidInput([
      {
        location: "cursor",
        message: "is not a cursor of this list: send the `cursor` of the previous page, or none",
      },
    ]);
  }
  return lastId;
}

function checksum(text: string): string {
  return crc32(text).toString(36);
}
