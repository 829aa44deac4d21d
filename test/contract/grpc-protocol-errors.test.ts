import { connect } from "node:net";
import { gzipSync } from "node:zlib";
import { status } from "@grpc/grpc-js";
import { afterAll, describe, expect, it } from "vitest";
import { createLog } from "../../src/observe/log.js";
import { encode } from "../robustness/fuzz/kind.js";
import { operationNamed } from "../robustness/fuzz/operations.js";
import { type Outcome, readOutcome } from "../robustness/fuzz/outcome.js";
import { callHeaders, grpcFrame, grpcStatusWithin } from "../support/clients/grpc-streams.js";
import { callWithHeaders } from "../support/clients/http2-frames.js";
import { openRawClient } from "../support/clients/raw-client.js";
import { type Headers, type RawRequest, toRawRequest } from "../support/clients/raw-request.js";
import type { RawResponse } from "../support/clients/sockets.js";
import { openTestSession } from "../support/clients/test-connections.js";
import { openFileService } from "../support/file-service.js";

/** The parsed lines of the log. */
const lines: Record<string, unknown>[] = [];
const log = createLog("info", { destination: { write: (line: string) => void lines.push(JSON.parse(line)) } });

const { app, ...home } = await openFileService({ log });
const client = openRawClient(app);
afterAll(() => client.close());

const operation = operationNamed("createIdentity");
const health = "/grpc.health.v1.Health/Check";
const reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const message = encode("grpc", operation, { externalId: "unread" });
const large = Buffer.alloc(5 * 2 ** 20);

/** How a request differs from a valid one. */
interface Fault {
  readonly path?: string;
  readonly headers?: Headers;
  readonly body?: Buffer;
}

/** A request over a protocol that is valid except for this fault. */
function requestOver(protocol: "grpc" | "grpc-web" | "http", { path, headers = [], body }: Fault): RawRequest {
  const good = encode(protocol, operation, { externalId: "unread" });
  const valid = toRawRequest(protocol, operation, home.key, good);
  if (valid.by === "socket") throw new Error("a valid call is not sent as raw bytes");
  return {
    ...valid,
    ...(path !== undefined && { path }),
    ...(body !== undefined && { body }),
    headers: [...new Map([...valid.headers, ...headers])],
  };
}

/** Sends a request and reads its response, which must have a code, details and request id of the error catalogue. */
async function send(raw: RawRequest): Promise<{ response: RawResponse; outcome: Outcome }> {
  const response = await client.send(raw);
  return { response, outcome: readOutcome(operation, response) };
}

const invalid = "application/invalid_input";
const tooLarge = "application/payload_too_large";
const mediaType = "application/unsupported_media_type";
const gzip: Headers = [["grpc-encoding", "gzip"]];
const unknownCompression: Fault = { headers: [["grpc-encoding", "zstd"]], body: grpcFrame(message, 1) };

/** Requests that grpc-js cannot decode, or decodes to something else; and an equivalent over HTTP where one exists. */
const undecodable: readonly {
  what: string;
  fault: Fault;
  code: string;
  locations: string[];
  overHttp?: Fault;
  /** gRPC-Web refuses every compressed message. */
  refusedOverWeb?: boolean;
}[] = [
  ...Object.entries<Fault>({
    "no message": { body: Buffer.alloc(0) },
    "half a frame header": { body: grpcFrame(message).subarray(0, 3) },
    "a truncated message": { body: grpcFrame(message).subarray(0, -1) },
    "two messages": { body: Buffer.concat([grpcFrame(message), grpcFrame(message)]) },
  }).map(([what, fault]) => ({ what, fault, code: invalid, locations: ["body"] })),
  ...["soon", "", "5", "x5Sx", "-1S", "123456789S", "1S, 2S", "ÿ"].map((timeout) => ({
    what: `the timeout "${timeout}"`,
    fault: { headers: [["grpc-timeout", timeout]] as const },
    code: invalid,
    locations: ["grpc-timeout"],
  })),
  {
    what: "a message of five megabytes",
    fault: { body: grpcFrame(large) },
    code: tooLarge,
    locations: [],
    overHttp: { body: large },
  },
  {
    what: "a length over the limit",
    fault: { body: grpcFrame(message, 0, 2 ** 32 - 1) },
    code: tooLarge,
    locations: [],
  },
  ...Object.entries<Fault>({
    "a compressed message": { headers: gzip, body: grpcFrame(gzipSync(message), 1) },
    "an uncompressed message with a grpc-encoding header": { headers: gzip },
    "an uncompressed message with the compressed flag": { headers: gzip, body: grpcFrame(message, 1) },
    "the compressed flag without a grpc-encoding header": { body: grpcFrame(message, 1) },
    "the compressed flag with the identity encoding": {
      headers: [["grpc-encoding", "identity"]],
      body: grpcFrame(message, 1),
    },
    "a message that decompresses to five megabytes": { headers: gzip, body: grpcFrame(gzipSync(large), 1) },
    "an unknown compression": unknownCompression,
  }).map(([what, fault]) => ({
    what,
    fault,
    code: mediaType,
    locations: [],
    overHttp: { headers: [["content-encoding", "gzip"]] as const },
  })),
];

describe.each(undecodable)("$what over gRPC", ({ fault, code, locations, overHttp, refusedOverWeb }) => {
  it(`is refused with ${code}, as over another protocol`, async () => {
    const refusal = { ok: false, code, locations };
    expect((await send(requestOver("grpc", fault))).outcome).toMatchObject(refusal);
    const equivalent = overHttp ? requestOver("http", overHttp) : requestOver("grpc-web", fault);
    expect((await send(equivalent)).outcome).toMatchObject(refusedOverWeb ? { ok: false, code: mediaType } : refusal);
  });

  it("is not decoded before its caller is authenticated", async () => {
    const headers: Headers = [...(fault.headers ?? []), ["authorization", "Bearer lk_wrong"]];
    const { outcome } = await send(requestOver("grpc", { ...fault, headers }));
    expect(outcome).toMatchObject({ ok: false, code: "authentication/malformed" });
  });

  it("is logged with the request id that the caller received", async () => {
    const { outcome } = await send(requestOver("grpc", fault));
    const { requestId } = outcome;
    const line = () => lines.find((each) => each["requestId"] === requestId);
    const { workspaceId } = home;
    await expect
      .poll(line, { timeout: 5_000 })
      .toMatchObject({ protocol: "grpc", method: operation.rpcPath, code, workspaceId });
  });
});

it("none of these requests changed anything", async () => {
  const listing = operationNamed("listIdentities");
  const response = await client.send(toRawRequest("http", listing, home.key, Buffer.from("{}")));
  expect(readOutcome(listing, response)).toMatchObject({ ok: true, response: { identities: [] } });
});

describe("a request for no known method", () => {
  it.each<[string, Fault, string]>([
    ["an unknown method", { path: "/latchkey.v1.KeysService/Nonsense" }, "application/route_not_found"],
    ["another content type", { headers: [["content-type", "text/plain"]] }, mediaType],
  ])("%s is refused as over HTTP, and the log line does not contain it", async (_what, fault, code) => {
    const { response, outcome } = await send(requestOver("grpc", fault));
    expect(outcome).toMatchObject({ ok: false, code });
    expect((await send(requestOver("http", fault))).outcome).toMatchObject({ ok: false, code });
    expect(response.headers["grpc-status"]).toBe("12");
    const line = () => lines.find((each) => each["requestId"] === outcome.requestId);
    await expect.poll(line, { timeout: 5_000 }).toMatchObject({ protocol: "grpc", method: "(none)", code });
  });

  it.each<[string, string, Buffer]>([
    ["a health check with an undecodable message", health, grpcFrame(Buffer.of(0xff, 0xff))],
    ["a health check without a message", health, Buffer.alloc(0)],
    ["reflection with an undecodable message", reflection, grpcFrame(Buffer.of(0xff, 0xff))],
    [
      "the same after a response",
      reflection,
      Buffer.concat([grpcFrame(Buffer.of(0x3a, 0)), grpcFrame(Buffer.of(0xff, 0xff))]),
    ],
  ])("%s is a client error", async (_what, path, body) => {
    const { outcome } = await send(requestOver("grpc", { path, body }));
    expect(outcome).toMatchObject({ ok: false, code: invalid, locations: ["body"] });
  });
});

describe("gRPC protocol compliance:", () => {
  it("a content type other than gRPC gets HTTP status 415", async () => {
    const { response } = await send(requestOver("grpc", { headers: [["content-type", "application/json"]] }));
    expect(response.status).toBe(415);
  });

  it("grpc-accept-encoding is sent with every response, also to an uncompressed request", async () => {
    for (const [fault, found] of [
      [unknownCompression, "12"],
      [{}, "0"],
    ] as const) {
      const { response } = await send(requestOver("grpc", fault));
      expect(response.headers).toMatchObject({ "grpc-status": found, "grpc-accept-encoding": "identity" });
    }
  });

  it("a request that ends with its headers is refused at once, not after a timeout", async () => {
    const session = openTestSession(app.grpcAddress);
    for (const path of ["/latchkey.v1.KeysService/VerifyKey", health]) {
      const stream = session.request(callHeaders(path, home.key), { endStream: true });
      expect(await grpcStatusWithin(stream, 20_000), path).toBe(status.INVALID_ARGUMENT);
    }
    const delegate = session.request(callHeaders("/latchkey.v1.VerifierService/Delegate", home.key), {
      endStream: true,
    });
    expect(await grpcStatusWithin(delegate, 20_000), "a stream without messages").toBe(status.OK);
  });

  it("a health check of an unknown service is NOT_FOUND", async () => {
    const body = grpcFrame(Buffer.from("\n\x08nonsense"));
    const { headers } = await client.send(requestOver("grpc", { path: health, body }));
    expect(headers["grpc-status"]).toBe("5");
  });
});

describe("headers that grpc-js silently drops:", () => {
  it("an Idempotency-Key that is not ASCII is refused, as over HTTP", async () => {
    const fault: Fault = { headers: [["idempotency-key", "clé"]] };
    const refusal = { ok: false, code: invalid, locations: ["Idempotency-Key"] };
    expect((await send(requestOver("grpc", fault))).outcome).toMatchObject(refusal);
    expect((await send(requestOver("http", fault))).outcome).toMatchObject(refusal);
  });

  it("a credential that is not ASCII is malformed, not missing, as over HTTP", async () => {
    const fault: Fault = { headers: [["authorization", `Bearer ${home.key}é`]] };
    const refusal = { ok: false, code: "authentication/malformed" };
    expect((await send(requestOver("grpc", fault))).outcome).toMatchObject(refusal);
    expect((await send(requestOver("http", fault))).outcome).toMatchObject(refusal);
  });

  it("two credentials are refused, although each is valid", async () => {
    const [host = "", port] = app.grpcAddress.split(":");
    const socket = connect(Number(port), host);
    const before = lines.length;
    const credential = ["authorization", `Bearer ${home.key}`] as const;
    socket.write(callWithHeaders([[":path", operation.rpcPath], credential, credential], grpcFrame(message)));
    const refusal = { protocol: "grpc", method: operation.rpcPath, code: "authentication/malformed" };
    await expect.poll(() => lines.slice(before), { timeout: 5_000 }).toMatchObject([refusal]);
    socket.destroy();
  });

  it("a deadline in thirty days is not in the past", async () => {
    const listing = operationNamed("listKeys");
    for (const timeout of ["2592000S", "99999999H"]) {
      const raw = requestOver("grpc", {
        path: listing.rpcPath,
        headers: [["grpc-timeout", timeout]],
        body: grpcFrame(Buffer.alloc(0)),
      });
      expect(readOutcome(listing, await client.send(raw))).toMatchObject({ ok: true });
    }
  });
});
