// Hand-written, because the clients of the other tests expose decoded messages, not the bytes and their order.
import { Agent, request as httpRequest } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { fromBinary, fromJsonString, toBinary, toJsonString } from "@bufbuild/protobuf";
import { expect } from "vitest";
import { BadRequestSchema, ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { type HttpRoute, pathOf } from "../operations.js";
import type { Rpc } from "../rpcs.js";
import { readAnswer } from "./http.js";
import { toRequestMessage } from "./messages.js";
import { toRefusal } from "./outcome.js";
import type { CallRequest } from "./protocol-client.js";
import { type ConnectDetail, findConnectDetail, findDetail, parseStatusDetails } from "./status-details.js";

/** A response as it was sent: headers, then trailers, in their order. */
export interface WireResponse {
  readonly status: number;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Buffer;
}

/** The outcome of a call: an error code, or a response message as JSON. */
export type WireOutcome = { readonly code: string } | { readonly code: "ok"; readonly json: string };

/** The body of a request or, for GET, its query. */
type Payload = Buffer | string;

/** How to send a request other than all at once. */
export interface SendOptions {
  /** The headers are sent at once, the body when this resolves. */
  readonly bodyAfter?: Promise<unknown>;
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
  send(authorization: string | undefined, payload: Payload, how?: SendOptions): Promise<WireResponse>;
  /** Checks the form that all responses of this protocol have, and returns the outcome of the call. */
  read(response: WireResponse): Promise<WireOutcome>;
}

/** The ports of an application, with persistent connections. */
export interface Wire {
  /** A client for every protocol and route of an RPC. */
  clientsFor(rpc: Rpc): WireClient[];
  close(): void;
}

/** Connects to an application's ports. */
export function openWire({ httpUrl, grpcAddress }: { httpUrl: string; grpcAddress: string }): Wire {
  const agent = new Agent({ keepAlive: true, maxSockets: 8 });
  const session = connectHttp2(`http://${grpcAddress}`);

  function overHttp(
    method: string,
    path: string,
    type: string,
    authorization: string | undefined,
    body?: Buffer,
    { bodyAfter, headers: more }: SendOptions = {},
  ) {
    return new Promise<WireResponse>((resolve, reject) => {
      const headers = {
        ...more,
        ...(authorization && { authorization }),
        ...(body && { "content-type": type, "content-length": body.length }),
      };
      const outgoing = httpRequest(httpUrl + path, { method, agent, headers }, async (incoming) => {
        const bytes = Buffer.concat(await incoming.toArray());
        resolve({ status: incoming.statusCode ?? 0, headers: pairs(incoming.rawHeaders), body: bytes });
      });
      outgoing.on("error", reject);
      if (bodyAfter === undefined) return void outgoing.end(body);
      outgoing.flushHeaders();
      void bodyAfter.then(() => outgoing.end(body));
    });
  }

  function overGrpc(
    path: string,
    authorization: string | undefined,
    message: Buffer,
    { bodyAfter, headers: more }: SendOptions = {},
  ) {
    return new Promise<WireResponse>((resolve, reject) => {
      const stream = session.request({
        ":method": "POST",
        ":path": path,
        "content-type": "application/grpc",
        te: "trailers",
        ...more,
        ...(authorization && { authorization }),
      });
      const headers: (readonly [string, string])[] = [];
      const body: Buffer[] = [];
      // The third argument, which the types lack, has the headers in the order in which they arrived.
      const take = (...[, , raw]: unknown[]) => void headers.push(...pairs(raw as string[]));
      stream.on("response", take).on("trailers", take);
      stream.on("data", (chunk: Buffer) => body.push(chunk)).on("error", reject);
      stream.on("end", () => resolve({ status: 200, headers, body: Buffer.concat(body) }));
      if (bodyAfter === undefined) return void stream.end(framed(message));
      void bodyAfter.then(() => stream.end(framed(message)));
    });
  }

  function grpcClient({ method }: Rpc): WireClient {
    return {
      name: "gRPC",
      isHttp: false,
      write: (request) => binary(method, request),
      garbage: noMessage,
      send: (authorization, message, how) => overGrpc(pathOf(method), authorization, message as Buffer, how),
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
      send: (authorization, message, how) =>
        overHttp("POST", pathOf(method), type, authorization, framed(message as Buffer), how),
      read: async (response) => readGrpc(method, withTrailers(response)),
    };
  }

  function connectClient({ method }: Rpc): WireClient {
    return {
      name: "Connect",
      isHttp: true,
      write: (request) => Buffer.from(toJsonString(method.input, toRequestMessage(method.input, request))),
      garbage: noJson,
      send: (authorization, body, how) =>
        overHttp("POST", pathOf(method), "application/json", authorization, body as Buffer, how),
      read: async (response) => readConnect(method, response),
    };
  }

  function routeClient([verb, path]: HttpRoute): WireClient {
    const byQuery = verb === "GET";
    return {
      name: `${verb} ${path}`,
      isHttp: true,
      write: (request) => (byQuery ? queryOf(request) : Buffer.from(JSON.stringify(request))),
      garbage: byQuery ? "?nonsense=%00" : noJson,
      send: (authorization, payload, how) =>
        typeof payload === "string"
          ? overHttp(verb, path + payload, "", authorization, undefined, how)
          : overHttp(verb, path, "application/json", authorization, payload, how),
      read: readHttp,
    };
  }

  return {
    clientsFor: (rpc) => [grpcClient(rpc), grpcWebClient(rpc), connectClient(rpc), ...rpc.routes.map(routeClient)],
    close() {
      agent.destroy();
      session.destroy();
    },
  };
}

const noMessage = Buffer.of(0xff, 0xff, 0xff);
const noJson = Buffer.from(`{"nonsense": `);

function pairs(raw: readonly string[]): (readonly [string, string])[] {
  return raw.flatMap((name, index) => (index % 2 === 0 ? [[name.toLowerCase(), raw[index + 1] ?? ""] as const] : []));
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

/** A gRPC frame: a flag, the length in four bytes, and the message. */
function framed(message: Buffer): Buffer {
  const header = Buffer.alloc(5);
  header.writeUInt32BE(message.length, 1);
  return Buffer.concat([header, message]);
}

/** gRPC-Web sends trailers as the last frame of the body, unless there are only trailers. */
function withTrailers(response: WireResponse): WireResponse {
  const { headers, body } = response;
  if (body.length === 0) return response;
  const end = 5 + body.readUInt32BE(1);
  const [first, rest] = body[0] === 0 ? [body.subarray(0, end), body.subarray(end)] : [Buffer.alloc(0), body];
  expect(rest[0], "the flag of the trailers frame").toBe(0x80);
  const lines = rest.subarray(5).toString().trim().split("\r\n");
  const trailers = lines.map((line) => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const;
  });
  return { ...response, headers: [...headers, ...trailers], body: first };
}

/** The value of a header. Repeated headers must have equal values. */
export function headerOf({ headers }: WireResponse, name: string): string | undefined {
  const values = new Set(headers.filter(([each]) => each === name).map(([, value]) => value));
  expect(values.size, `different values of ${name}`).toBeLessThan(2);
  return [...values][0];
}

function readGrpc({ output }: Rpc["method"], response: WireResponse): WireOutcome {
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
  unavailable: 14,
  unauthenticated: 16,
};

function readConnect({ output }: Rpc["method"], response: WireResponse): WireOutcome {
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

async function readHttp({ status, headers, body }: WireResponse): Promise<WireOutcome> {
  const text = body.toString();
  const response = new Response(text, { status, headers: headers as [string, string][] });
  const outcome = await readAnswer(response, text.includes(`"pagination":`));
  return outcome.ok ? { code: "ok", json: JSON.stringify(outcome.data) } : outcome;
}
