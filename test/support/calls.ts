import { expect } from "vitest";
import { expectSuccess, post } from "./clients/http-requests.js";
import { operatorKey } from "./harness.js";

/** An event as the HTTP list returns it. */
export interface AuditEventResponse {
  readonly eventId: string;
  readonly workspaceId: string;
  readonly type: string;
  readonly actor: string;
  readonly resourceId: string;
  readonly requestId: string;
  readonly at: number;
  readonly before?: Readonly<Record<string, unknown>>;
  readonly after?: Readonly<Record<string, unknown>>;
}

/** A page as HTTP returns it. */
export interface PageResponse<Row> {
  readonly data: Row[];
  readonly pagination: { readonly hasMore: boolean; readonly cursor?: string };
}

/** Calls an operation, such as `keys.createKey`, that must succeed; returns its data. */
export async function succeed<T>(origin: string, operation: string, key: string, body: unknown): Promise<T> {
  return expectSuccess(await post(origin, `/v2/${operation}`, key, body)) as T;
}

/** Calls a list that must succeed; returns its page. */
export async function readPage<Row>(
  origin: string,
  operation: string,
  key: string,
  body: unknown,
): Promise<PageResponse<Row>> {
  const response = await post(origin, `/v2/${operation}`, key, body);
  expectSuccess(response);
  return JSON.parse(response.text);
}

/** Follows a list's cursors to the end, and runs a callback between any two pages. */
export async function walk<Row>(
  origin: string,
  operation: string,
  key: string,
  body: object,
  between: () => Promise<void> = async () => {},
): Promise<Row[]> {
  const rows: Row[] = [];
  let cursor: string | undefined;
  for (let pages = 0; pages < 1_000; pages++) {
    const { data, pagination } = await readPage<Row>(origin, operation, key, { ...body, ...(cursor && { cursor }) });
    rows.push(...data);
    expect(pagination.hasMore).toBe(pagination.cursor !== undefined);
    cursor = pagination.cursor;
    if (cursor === undefined) return rows;
    await between();
  }
  return expect.fail("the list never ends");
}

/** All matching events, newest first. */
export function listEvents(origin: string, key: string, body: object = {}): Promise<AuditEventResponse[]> {
  return walk<AuditEventResponse>(origin, "workspaces.listAuditEvents", key, body);
}

/** Every event, newest first. */
export function allEvents(origin: string): Promise<AuditEventResponse[]> {
  return listEvents(origin, operatorKey, { since: 0 });
}
