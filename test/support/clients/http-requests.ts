import { once } from "node:events";
import { type IncomingHttpHeaders, type IncomingMessage, type OutgoingHttpHeaders, request } from "node:http";
import { expect } from "vitest";
import { keep } from "../artifacts.js";
import { operatorKey } from "../harness.js";
import { openSocket, parseResponse } from "./sockets.js";

/** A response of the HTTP port. */
export interface HttpResponse {
  /** The origin of the request, without a path. */
  readonly origin: string;
  /** The Host header of a request of bytes. */
  readonly host?: string;
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** A request; without a body unless one is given. */
export interface HttpRequest {
  readonly method?: string;
  readonly key?: string;
  readonly headers?: OutgoingHttpHeaders;
  /** Sent whole, with a Content-Length. */
  readonly body?: string | Buffer;
  /** Sent in chunks, without a Content-Length. */
  readonly chunks?: readonly Buffer[];
}

/** Sends one request on a new connection. Unlike fetch it accepts any method, header and body. */
export async function send(
  origin: string,
  path: string,
  { method = "POST", key, headers, body, chunks }: HttpRequest = {},
): Promise<HttpResponse> {
  const outgoing = request(origin + path, {
    method,
    agent: false,
    headers: {
      ...(key !== undefined && { authorization: `Bearer ${key}` }),
      ...(body !== undefined && { "content-length": Buffer.byteLength(body) }),
      ...headers,
    },
  });
  const answered = once(outgoing, "response");
  // The server may respond and close before it has read everything. Only the response counts.
  outgoing.on("error", () => {});
  for (const chunk of chunks ?? []) outgoing.write(chunk);
  outgoing.end(body);
  const [incoming]: IncomingMessage[] = await answered;
  if (incoming === undefined) throw new Error("a response event without a response");
  const text = Buffer.concat(await incoming.toArray()).toString();
  return recorded({ origin, status: incoming.statusCode ?? 0, headers: incoming.headers, text });
}

/** Posts JSON. */
export function post(origin: string, path: string, key: string | undefined, json: unknown): Promise<HttpResponse> {
  return postText(origin, path, key, JSON.stringify(json));
}

/** Posts bytes with a JSON content type. */
export function postText(
  origin: string,
  path: string,
  key: string | undefined,
  body: string | Buffer,
): Promise<HttpResponse> {
  return send(origin, path, {
    ...(key !== undefined && { key }),
    headers: { "content-type": "application/json" },
    body,
  });
}

/** Writes bytes to a bare socket, and reads until the server closes it. */
export async function sendBytes(origin: string, bytes: string | Buffer): Promise<HttpResponse> {
  const socket = openSocket(origin);
  socket.setTimeout(5_000, () => socket.destroy(new Error("the server neither responded nor closed the connection")));
  socket.write(bytes);
  const received: Buffer[] = [];
  socket.on("data", (chunk) => received.push(chunk));
  await new Promise((resolve) => socket.once("close", resolve));
  const { status, headers, body } = parseResponse(Buffer.concat(received));
  const [, host = ""] = /^host: *(\S+)/im.exec(bytes.toString("latin1")) ?? [];
  return recorded({ origin, host, status, headers, text: body.toString() });
}

/** Records an error response for the secret scan. */
function recorded(response: HttpResponse): HttpResponse {
  if (response.status >= 400) keep("refusals", `${JSON.stringify(response.headers)} ${response.text}`);
  return response;
}

/** The error of one field, as the response reports it. */
export interface FieldError {
  readonly location: string;
  readonly message: string;
}

const titles: Record<number, string> = {
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  409: "Conflict",
  413: "Payload Too Large",
  415: "Unsupported Media Type",
  429: "Too Many Requests",
  500: "Internal Server Error",
  503: "Service Unavailable",
  504: "Gateway Timeout",
};

/**
 * Checks an error response: exactly the members of the error envelope, all consistent. Returns its detail and fields.
 */
export function expectError(
  response: HttpResponse,
  status: number,
  error: string,
  docsBase = response.origin,
): { detail: string; errors: FieldError[] } {
  expect(response, response.text).toMatchObject({ status });
  expect(response.headers["content-type"]).toMatch(/^application\/(problem\+)?json; charset=utf-8$/);
  const body = JSON.parse(response.text);
  // The address that the client has used, if the service could read it.
  const bases = [docsBase, ...(response.host ? [`http://${response.host}`] : [])];
  const types = bases.map((base) => `${base}/api-reference/errors-v2/service/${error}`);
  expect(types).toContain(body.error.type);
  expect(body).toStrictEqual({
    meta: { requestId: expect.stringMatching(/^req_[0-9a-z]{26}$/) },
    error: {
      detail: expect.stringMatching(/\S/),
      status,
      title: titles[status],
      type: expect.any(String),
      ...(error === "application/invalid_input" && { errors: expect.any(Array) }),
    },
  });
  expect(response.headers["x-request-id"]).toBe(body.meta.requestId);
  for (const field of body.error.errors ?? []) {
    expect(field).toStrictEqual({ location: expect.stringMatching(/\S/), message: expect.stringMatching(/\S/) });
  }
  return { detail: body.error.detail, errors: body.error.errors ?? [] };
}

/** Expects `invalid_input`; returns the locations of the invalid fields, sorted. */
export function expectInvalid(response: HttpResponse): string[] {
  const { errors } = expectError(response, 400, "application/invalid_input");
  expect(errors).not.toHaveLength(0);
  return errors.map(({ location }) => location).sort();
}

/** Expects a success in its envelope; returns its data. */
export function expectSuccess(response: HttpResponse): unknown {
  expect(response, response.text).toMatchObject({ status: 200 });
  expect(response.headers["content-type"]).toMatch(/^application\/json\b/);
  const { meta, data, ...more } = JSON.parse(response.text);
  expect(meta).toStrictEqual({ requestId: expect.stringMatching(/^req_[0-9a-z]{26}$/) });
  expect(response.headers["x-request-id"]).toBe(meta.requestId);
  expect(data).toBeTypeOf("object");
  expect(Object.keys(more).filter((name) => name !== "pagination")).toEqual([]);
  return data;
}

/** A new workspace and its first key. */
export async function createWorkspace(origin: string, name = "test"): Promise<{ workspaceId: string; key: string }> {
  const response = await post(origin, "/v2/workspaces.createWorkspace", operatorKey, { name });
  return expectSuccess(response) as { workspaceId: string; key: string };
}
