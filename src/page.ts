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
export function readPage(list: ListName, request: { limit?: number; cursor?: string }): PageRequest {
  return {
    limit: request.limit ?? 100,
    after: request.cursor === undefined ? "" : readCursor(list, request.cursor),
  };
}

/** Cuts the over-fetched row off and says where the page stands. */
export function writePage<Row>(list: ListName, page: PageRequest, rows: readonly Row[], idOf: (row: Row) => string) {
  const hasMore = rows.length > page.limit;
  const shown = hasMore ? rows.slice(0, page.limit) : rows;
  const last = shown.at(-1);
  const cursor = hasMore && last !== undefined ? writeCursor(list, idOf(last)) : undefined;
  return { rows: shown, pagination: { hasMore, cursor } };
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
