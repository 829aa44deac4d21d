import { connect } from "node:net";
import { gzipSync } from "node:zlib";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { encode } from "../robustness/fuzz/kind.js";
import { operationNamed } from "../robustness/fuzz/operations.js";
import { type Outcome, readOutcome } from "../robustness/fuzz/outcome.js";
import { type Answer, createSender, type Sender } from "../robustness/fuzz/send.js";
import { frame, type Headers, type Sent, sentTo } from "../robustness/fuzz/sent.js";
import { callWithHead } from "../robustness/overload/bare-grpc.js";
import { createWorkspace } from "../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../support/harness.js";

/** Lines of the log, as they are read by machines. */
const lines: Record<string, unknown>[] = [];
const log = pino({ level: "info", base: null }, { write: (line: string) => void lines.push(JSON.parse(line)) });

let app: TestApp;
let sender: Sender;
let home: { workspaceId: string; key: string };

beforeAll(async () => {
  app = await openTestApp({ log });
  sender = createSender(app);
  home = await createWorkspace(app.httpUrl);
});
afterAll(async () => {
  sender.close();
  await app.close();
});

const operation = operationNamed("createIdentity");
const health = "/grpc.health.v1.Health/Check";
const reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const message = encode("grpc", operation, { externalId: "unread" });
const large = Buffer.alloc(5 * 2 ** 20);

/** What differs from a sound call. */
interface Odd {
  readonly path?: string;
  readonly headers?: Headers;
  readonly body?: Buffer;
}

/** A call through a protocol, sound but for what is odd about it. */
function callBy(protocol: "grpc" | "grpc-web" | "http", { path, headers = [], body }: Odd): Sent {
  const good = encode(protocol, operation, { externalId: "unread" });
  const sound = sentTo(protocol, operation, home.key, good);
  if (sound.by === "socket") throw new Error("a sound call is not sent as bytes");
  return {
    ...sound,
    ...(path !== undefined && { path }),
    ...(body !== undefined && { body }),
    headers: [...new Map([...sound.headers, ...headers])],
  };
}

/** Sends, and reads the answer, which must be of the catalogue: its code, details and request id. */
async function send(sent: Sent): Promise<{ answer: Answer; outcome: Outcome }> {
  const answer = await sender.send(sent);
  return { answer, outcome: readOutcome(operation, answer) };
}

const invalid = "application/invalid_input";
const tooLarge = "application/payload_too_large";
const mediaType = "application/unsupported_media_type";
const gzip: Headers = [["grpc-encoding", "gzip"]];
const unknownCompression: Odd = { headers: [["grpc-encoding", "zstd"]], body: frame(message, 1) };

/** What grpc-js cannot read, or reads sense into; and the like of it over HTTP, where there is one. */
const unread: readonly {
  what: string;
  odd: Odd;
  code: string;
  locations: string[];
  overHttp?: Odd;
  /** Over gRPC-Web, where compressed messages are not read at all. */
  notOverWeb?: boolean;
}[] = [
  ...Object.entries<Odd>({
    "no message": { body: Buffer.alloc(0) },
    "half a head of a message": { body: frame(message).subarray(0, 3) },
    "a message cut short": { body: frame(message).subarray(0, -1) },
    "two messages": { body: Buffer.concat([frame(message), frame(message)]) },
  }).map(([what, odd]) => ({ what, odd, code: invalid, locations: ["body"] })),
  ...["soon", "", "5", "x5Sx", "-1S", "123456789S", "1S, 2S", "ÿ"].map((timeout) => ({
    what: `the time-out "${timeout}"`,
    odd: { headers: [["grpc-timeout", timeout]] as const },
    code: invalid,
    locations: ["grpc-timeout"],
  })),
  {
    what: "a message of five megabytes",
    odd: { body: frame(large) },
    code: tooLarge,
    locations: [],
    overHttp: { body: large },
  },
  { what: "a length beyond all bounds", odd: { body: frame(message, 0, 2 ** 32 - 1) }, code: tooLarge, locations: [] },
  ...Object.entries<Odd>({
    "a compressed message": { headers: gzip, body: frame(gzipSync(message), 1) },
    "a message that may be compressed, and is not": { headers: gzip },
    "what is not compressed, but says so": { headers: gzip, body: frame(message, 1) },
    "what says so, and not how": { body: frame(message, 1) },
    "what is compressed by nothing": { headers: [["grpc-encoding", "identity"]], body: frame(message, 1) },
    "what expands to five megabytes": { headers: gzip, body: frame(gzipSync(large), 1) },
    "a compression nobody knows": unknownCompression,
  }).map(([what, odd]) => ({
    what,
    odd,
    code: mediaType,
    locations: [],
    overHttp: { headers: [["content-encoding", "gzip"]] as const },
  })),
];

describe.each(unread)("$what over gRPC", ({ odd, code, locations, overHttp, notOverWeb }) => {
  it(`is refused with ${code}, as through another protocol`, async () => {
    const refusal = { ok: false, code, locations };
    expect((await send(callBy("grpc", odd))).outcome).toMatchObject(refusal);
    const like = overHttp ? callBy("http", overHttp) : callBy("grpc-web", odd);
    expect((await send(like)).outcome).toMatchObject(notOverWeb ? { ok: false, code: mediaType } : refusal);
  });

  it("is not looked at before its caller has been judged", async () => {
    const headers: Headers = [...(odd.headers ?? []), ["authorization", "Bearer lk_wrong"]];
    const { outcome } = await send(callBy("grpc", { ...odd, headers }));
    expect(outcome).toMatchObject({ ok: false, code: "authentication/malformed" });
  });

  it("is a line of the log, with the id that the caller was told", async () => {
    const { outcome } = await send(callBy("grpc", odd));
    const { requestId } = outcome;
    const line = () => lines.find((each) => each["requestId"] === requestId);
    const { workspaceId } = home;
    await expect
      .poll(line, { timeout: 5_000 })
      .toMatchObject({ protocol: "grpc", method: operation.rpcPath, code, workspaceId });
  });
});

it("nothing of all that has changed anything", async () => {
  const listing = operationNamed("listIdentities");
  const answer = await sender.send(sentTo("http", listing, home.key, Buffer.from("{}")));
  expect(readOutcome(listing, answer)).toMatchObject({ ok: true, response: { identities: [] } });
});

describe("what is for no method of ours", () => {
  it.each<[string, Odd, string]>([
    ["an unknown method", { path: "/latchkey.v1.KeysService/Nonsense" }, "application/route_not_found"],
    ["another content type", { headers: [["content-type", "text/plain"]] }, mediaType],
  ])("%s is refused as over HTTP, and is a line of the log that does not repeat it", async (_what, odd, code) => {
    const { answer, outcome } = await send(callBy("grpc", odd));
    expect(outcome).toMatchObject({ ok: false, code });
    expect((await send(callBy("http", odd))).outcome).toMatchObject({ ok: false, code });
    expect(answer.headers["grpc-status"]).toBe("12");
    const line = () => lines.find((each) => each["requestId"] === outcome.requestId);
    await expect.poll(line, { timeout: 5_000 }).toMatchObject({ protocol: "grpc", method: "(none)", code });
  });

  it.each<[string, string, Buffer]>([
    ["a health check that is no message", health, frame(Buffer.of(0xff, 0xff))],
    ["a health check without a message", health, Buffer.alloc(0)],
    ["reflection of what is no message", reflection, frame(Buffer.of(0xff, 0xff))],
    ["the same after an answer", reflection, Buffer.concat([frame(Buffer.of(0x3a, 0)), frame(Buffer.of(0xff, 0xff))])],
  ])("%s is the caller's mistake", async (_what, path, body) => {
    const { outcome } = await send(callBy("grpc", { path, body }));
    expect(outcome).toMatchObject({ ok: false, code: invalid, locations: ["body"] });
  });
});

describe("gRPC's own rules stand:", () => {
  it("what is not gRPC is answered with HTTP's 415", async () => {
    const { answer } = await send(callBy("grpc", { headers: [["content-type", "application/json"]] }));
    expect(answer.status).toBe(415);
  });

  it("who compresses is told not to, and so is everybody else", async () => {
    for (const [odd, found] of [
      [unknownCompression, "12"],
      [{}, "0"],
    ] as const) {
      const { answer } = await send(callBy("grpc", odd));
      expect(answer.headers).toMatchObject({ "grpc-status": found, "grpc-accept-encoding": "identity" });
    }
  });

  it("health names no service that is not there", async () => {
    const body = frame(Buffer.from("\n\x08nonsense"));
    const { headers } = await sender.send(callBy("grpc", { path: health, body }));
    expect(headers["grpc-status"]).toBe("5");
  });
});

describe("what grpc-js would leave out of a head, and nobody would know:", () => {
  it("an Idempotency-Key that is not ASCII is refused, as over HTTP", async () => {
    const odd: Odd = { headers: [["idempotency-key", "clé"]] };
    const refusal = { ok: false, code: invalid, locations: ["Idempotency-Key"] };
    expect((await send(callBy("grpc", odd))).outcome).toMatchObject(refusal);
    expect((await send(callBy("http", odd))).outcome).toMatchObject(refusal);
  });

  it("a credential that is not ASCII is malformed, not missing, as over HTTP", async () => {
    const odd: Odd = { headers: [["authorization", `Bearer ${home.key}é`]] };
    const refusal = { ok: false, code: "authentication/malformed" };
    expect((await send(callBy("grpc", odd))).outcome).toMatchObject(refusal);
    expect((await send(callBy("http", odd))).outcome).toMatchObject(refusal);
  });

  it("of two credentials none is used, though each is good", async () => {
    const [host = "", port] = app.grpcAddress.split(":");
    const socket = connect(Number(port), host);
    const before = lines.length;
    const credential = ["authorization", `Bearer ${home.key}`] as const;
    socket.write(callWithHead([[":path", operation.rpcPath], credential, credential], frame(message)));
    const refusal = { protocol: "grpc", method: operation.rpcPath, code: "authentication/malformed" };
    await expect.poll(() => lines.slice(before), { timeout: 5_000 }).toMatchObject([refusal]);
    socket.destroy();
  });

  it("a deadline in thirty days is not in the past", async () => {
    const listing = operationNamed("listKeys");
    for (const timeout of ["2592000S", "99999999H"]) {
      const sent = callBy("grpc", {
        path: listing.rpcPath,
        headers: [["grpc-timeout", timeout]],
        body: frame(Buffer.alloc(0)),
      });
      expect(readOutcome(listing, await sender.send(sent))).toMatchObject({ ok: true });
    }
  });
});
