// Hand-written, because the clients of the other tests expose decoded messages, not the bytes and their order.
import { fromBinary, fromJsonString, toBinary, toJsonString } from "@bufbuild/protobuf";
import { expect } from "vitest";
import { BadRequestSchema, ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { type HttpRoute, pathOf } from "../operations.js";
import type { Rpc } from "../rpcs.js";
import { grpcFrame } from "./grpc-streams.js";
import { readResponse } from "./http.js";
import { toBody, toRequestMessage } from "./messages.js";
import { toRefusal } from "./outcome.js";
import type { CallRequest } from "./protocol-client.js";
import { openRawClient, type SendOptions } from "./raw-client.js";
import type { Headers } from "./raw-request.js";
import type { RawResponse } from "./sockets.js";
import { type ConnectDetail, findConnectDetail, findDetail, parseStatusDetails } from "./status-details.js";

/** The outcome of a call: an error code, or a response message as JSON. */
export type WireOutcome = { readonly code: string } | { readonly code: "ok"; readonly json: string };

/** The body of a request or, for GET, its query. */
type Payload = Buffer | string;

/** How to send a request other than all at once. */
export interface WireOptions extends SendOptions {
  /** Sent besides the headers of every request. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** A client of one RPC: over one protocol, or on one of its HTTP routes. */
export interface WireClient {
  readonly name: string;
  /** Whether an error has the status and the headers of HTTP. */
  readonly isHttp: boolean;
  write(request: CallRequest): Payload;
  /** A payload that no protocol can decode. */
  readonly garbage: Payload;
  send(authorization: string | undefined, payload: Payload, options?: WireOptions): Promise<RawResponse>;
  /** Checks the form that all responses of this protocol have, and returns the outcome of the call. */
  read(response: RawResponse): Promise<WireOutcome>;
}

/** The ports of an application, with persistent connections. */
export interface Wire {
  /** A client for every protocol and route of an RPC. */
  clientsFor(rpc: Rpc): WireClient[];
  close(): void;
}

/** Connects to an application's ports. */
export function openWire(app: { httpUrl: string; grpcAddress: string }): Wire {
  const client = openRawClient(app, 8);

  function overHttp(
    verb: string,
    path: string,
    type: string,
    authorization: string | undefined,
    body?: Buffer,
    { headers, ...options }: WireOptions = {},
  ) {
    const lines = linesOf({ ...headers, authorization, ...(body && { "content-type": type }) });
    return client.send({ by: "http", verb, path, headers: lines, body: body ?? Buffer.alloc(0) }, options);
  }

  function overGrpc(
    path: string,
    authorization: string | undefined,
    message: Buffer,
    { headers, ...options }: WireOptions = {},
  ) {
    const lines = linesOf({ "content-type": "application/grpc", te: "trailers", ...headers, authorization });
    return client.send({ by: "http2", path, headers: lines, body: grpcFrame(message) }, options);
  }

  function grpcClient({ method }: Rpc): WireClient {
    return {
      name: "gRPC",
      isHttp: false,
      write: (request) => binary(method, request),
      garbage: noMessage,
      send: (authorization, message, options) => overGrpc(pathOf(method), authorization, message as Buffer, options),
      read: async (response) => readGrpc(method, response),
    };
  }

  function grpcWebClient({ method }: Rpc): WireClient {
    const type = "application/grpc-web+proto";
    return {
      name: "gRPC-Web",
      isHttp: false,
      write: (request) => binary(method, request),
      garbage: noMessage,
      send: (authorization, message, options) =>
        overHttp("POST", pathOf(method), type, authorization, grpcFrame(message as Buffer), options),
      read: async (response) => readGrpc(method, withTrailers(response)),
    };
  }

  function connectClient({ method }: Rpc): WireClient {
    return {
      name: "Connect",
      isHttp: true,
      write: (request) => Buffer.from(toJsonString(method.input, toRequestMessage(method.input, request))),
      garbage: noJson,
      send: (authorization, body, options) =>
        overHttp("POST", pathOf(method), "application/json", authorization, body as Buffer, options),
      read: async (response) => readConnect(method, response),
    };
  }

  function routeClient([verb, path, bodyField]: HttpRoute): WireClient {
    const byQuery = verb === "GET";
    return {
      name: `${verb} ${path}`,
      isHttp: true,
      write: (request) => (byQuery ? queryOf(request) : Buffer.from(JSON.stringify(toBody(request, bodyField)))),
      garbage: byQuery ? "?nonsense=%00" : noJson,
      send: (authorization, payload, options) =>
        typeof payload === "string"
          ? overHttp(verb, path + payload, "", authorization, undefined, options)
          : overHttp(verb, path, "application/json", authorization, payload, options),
      read: readHttp,
    };
  }

  return {
    clientsFor: (rpc) => [grpcClient(rpc), grpcWebClient(rpc), connectClient(rpc), ...rpc.routes.map(routeClient)],
    close: () => client.close(),
  };
}

const noMessage = Buffer.of(0xff, 0xff, 0xff);
const noJson = Buffer.from(`{"nonsense": `);

/** The headers that have a value. */
function linesOf(headers: Readonly<Record<string, string | undefined>>): Headers {
  return Object.entries(headers).flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const]));
}

function binary({ input }: Rpc["method"], request: CallRequest): Buffer {
  return Buffer.from(toBinary(input, toRequestMessage(input, request)));
}

function queryOf(request: CallRequest): string {
  const query = new URLSearchParams(
    Object.entries(request).map(([name, value]) => [name, String(value)] as [string, string]),
  );
  return query.size > 0 ? `?${query}` : "";
}

/** gRPC-Web sends trailers as the last frame of the body, unless there are only trailers. */
function withTrailers(response: RawResponse): RawResponse {
  const { headerLines, body } = response;
  if (body.length === 0) return response;
  const end = 5 + body.readUInt32BE(1);
  const [first, rest] = body[0] === 0 ? [body.subarray(0, end), body.subarray(end)] : [Buffer.alloc(0), body];
  expect(rest[0], "the flag of the trailers frame").toBe(0x80);
  const lines = rest.subarray(5).toString().trim().split("\r\n");
  const trailers = lines.map((line) => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const;
  });
  return { ...response, headerLines: [...headerLines, ...trailers], body: first };
}

/** The value of a header. Repeated headers must have equal values. */
export function headerOf({ headerLines }: RawResponse, name: string): string | undefined {
  const values = new Set(headerLines.filter(([each]) => each === name).map(([, value]) => value));
  expect(values.size, `different values of ${name}`).toBeLessThan(2);
  return [...values][0];
}

function readGrpc({ output }: Rpc["method"], response: RawResponse): WireOutcome {
  const grpcCode = Number(headerOf(response, "grpc-status"));
  if (grpcCode === 0) {
    return { code: "ok", json: toJsonString(output, fromBinary(output, response.body.subarray(5))) };
  }
  const status = parseStatusDetails(headerOf(response, "grpc-status-details-bin") ?? "");
  expect(status.code).toBe(grpcCode);
  return toRefusal({
    grpcCode,
    message: status.message,
    info: findDetail(status, ErrorInfoSchema),
    badRequest: findDetail(status, BadRequestSchema),
    requestId: headerOf(response, "x-request-id"),
  });
}

/** Connect's names of the gRPC status codes that calls are refused with. */
const connectCodes: Readonly<Record<string, number>> = {
  invalid_argument: 3,
  deadline_exceeded: 4,
  not_found: 5,
  already_exists: 6,
  permission_denied: 7,
  resource_exhausted: 8,
  failed_precondition: 9,
  unavailable: 14,
  unauthenticated: 16,
};

function readConnect({ output }: Rpc["method"], response: RawResponse): WireOutcome {
  const text = response.body.toString();
  if (response.status === 200) return { code: "ok", json: toJsonString(output, fromJsonString(output, text)) };
  const { code, message, details } = JSON.parse(text) as {
    code: string;
    message: string;
    details: ConnectDetail[];
  };
  return toRefusal({
    grpcCode: connectCodes[code] ?? -1,
    message,
    info: findConnectDetail(details, ErrorInfoSchema),
    badRequest: findConnectDetail(details, BadRequestSchema),
    requestId: headerOf(response, "x-request-id"),
  });
}

async function readHttp({ status, headerLines, body }: RawResponse): Promise<WireOutcome> {
  const text = body.toString();
  const response = new Response(text, { status, headers: headerLines as [string, string][] });
  const outcome = await readResponse(response, text.includes(`"pagination":`));
  return outcome.ok ? { code: "ok", json: JSON.stringify(outcome.data) } : outcome;
}
