import { crc32 } from "node:zlib";
import { invalidInput } from "./errors.js";
import { type IdPrefix, isId } from "./ids.js";

/** The lists that can be paged through, and what their ids begin with. A cursor of one is not a cursor of another. */
const prefixes = { keys: "key", identities: "id", workspaces: "ws", events: "evt" } satisfies Record<string, IdPrefix>;
export type ListName = keyof typeof prefixes;

/** What a store is asked for: rows with an id above `after`, one more than `limit`. */
export interface PageRequest {
  readonly limit: number;
  readonly after: string;
}

/** Reads a list request's page: at most `limit` rows (default 100) behind the cursor. */
export function parsePageRequest(list: ListName, request: { limit?: number; cursor?: string }): PageRequest {
  return {
    limit: request.limit ?? 100,
    after: request.cursor === undefined ? "" : readCursor(list, request.cursor),
  };
}

/**
 * Cuts off the over-fetched row, and those that would make the page too heavy; says where the page stands.
 *
 * @param scannedTo the id of the last row that was looked at, if rows may follow it that nobody has looked at
 */
export function buildPage<Row>(
  list: ListName,
  page: PageRequest,
  rows: readonly Row[],
  idOf: (row: Row) => string,
  scannedTo?: string,
) {
  const shown = rows.slice(0, Math.min(page.limit, bearable(rows)));
  const last = shown.at(-1);
  const next = rows.length > shown.length && last !== undefined ? idOf(last) : scannedTo;
  return { rows: shown, pagination: { hasMore: next !== undefined, cursor: next && writeCursor(list, next) } };
}

/**
 * What clients of gRPC take in one message, unless they are told otherwise, are 4 MiB. A page that would have more ends
 * earlier, through all protocols alike. Not a bound on what is stored: that would have to be a fifth of what it is now, for the
 * sake of a page full of the worst.
 */
const heaviestPage = 4_000_000;

/** How many of the rows a page can bear: at least one, and none is a tenth of a page. */
function bearable(rows: readonly unknown[]): number {
  let weight = 0;
  const tooMany = rows.findIndex((row) => {
    weight += weightOf(row);
    return weight > heaviestPage;
  });
  return tooMany === -1 ? rows.length : Math.max(1, tooMany);
}

/** At most so many bytes has a value as protobuf, with its tags and lengths; JSON in a Struct has the most of these. */
function weightOf(value: unknown): number {
  if (typeof value === "string") return 12 + Buffer.byteLength(value);
  if (typeof value !== "object" || value === null || value instanceof Date) return 12;
  if (Array.isArray(value)) return value.reduce<number>((sum, item) => sum + weightOf(item), 12);
  return Object.entries(value).reduce((sum, [name, item]) => sum + 16 + Buffer.byteLength(name) + weightOf(item), 12);
}

/** Opaque to callers: the list and the last id of the page, with a checksum that tells our cursors from other text. */
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
        message: "is not a cursor of this list: hand back the `cursor` of the page before, or none",
      },
    ]);
  }
  return lastId;
}

function checksum(text: string): string {
  return crc32(text).toString(36);
}
