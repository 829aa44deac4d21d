import { once } from "node:events";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { ask, createWorkspace, expectFailure, expectSuccess, sendBytes } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";

let app: TestApp;
let origin: string;
let key: string;

beforeAll(async () => {
  app = await openTestApp();
  origin = app.httpUrl;
  key = (await createWorkspace(origin)).key;
});
afterAll(async () => {
  expectSuccess(await ask(origin, "/v1/keys.listKeys", { key }));
  await app.close();
});

/** A request as text: its first line, then its headers. */
function lines(...head: string[]): string {
  return `${head.join("\r\n")}\r\n\r\n`;
}

describe("what is not HTTP is answered with the envelope, and the connection is closed", () => {
  it.each([
    ["garbage", Buffer.from([0, 1, 2, 255, 254, 13, 10, 13, 10])],
    ["words", "hello, is anyone there?\r\n\r\n"],
    ["a TLS greeting", Buffer.from("16030100c8010000c40303", "hex")],
    ["a request line without a version", lines("GET /v2/liveness nonsense", "host: a")],
    ["an unknown method", lines("FETCH /v2/liveness HTTP/1.1", "host: a")],
    ["an unknown version", lines("GET /v2/liveness HTTP/9.9", "host: a")],
    ["HTTP/2 on this port", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ["a header without a colon", lines("GET /v2/liveness HTTP/1.1", "host: a", "nonsense")],
    ["a NUL in a header", lines("GET /v2/liveness HTTP/1.1", "host: a", "x: a\0b")],
    ["two lengths", lines("POST /v1/keys.listKeys HTTP/1.1", "host: a", "content-length: 1", "content-length: 2")],
    ["a length that is no number", lines("POST /v1/keys.listKeys HTTP/1.1", "host: a", "content-length: many")],
    [
      "a length beside chunks",
      lines("POST /v1/keys.listKeys HTTP/1.1", "host: a", "content-length: 5", "transfer-encoding: chunked"),
    ],
  ])("%s", async (_what, bytes) => {
    const answer = await sendBytes(origin, bytes);
    const { errors } = expectFailure(answer, 400, "application/invalid_input");
    expect(errors.map(({ location }) => location)).toEqual(["request"]);
    expect(answer.headers.connection).toBe("close");
  });

  it("a broken chunk in the midst of a body, with one answer", async () => {
    const head = lines(
      "POST /v1/keys.listKeys HTTP/1.1",
      "host: a",
      `authorization: Bearer ${key}`,
      "content-type: application/json",
      "transfer-encoding: chunked",
    );
    const answer = await sendBytes(origin, `${head}2\r\n{}\r\nnonsense\r\n`);
    expectFailure(answer, 400, "application/invalid_input");
  });

  it("what follows a request, which is answered first", async () => {
    const body = '{"externalId":"with more behind it"}';
    const head = lines(
      "POST /v2/identities.createIdentity HTTP/1.1",
      "host: a",
      `authorization: Bearer ${key}`,
      "content-type: application/json",
      `content-length: ${body.length}`,
    );
    const answer = await sendBytes(origin, `${head}${body}nonsense\r\n\r\n`);
    expect(answer.status).toBe(200);
    expect(answer.text).toMatch(/"identityId":.*HTTP\/1\.1 400 .*"location":"request"/s);
  });
});

describe("headers that are too large are refused as too large", () => {
  it("one large header", async () => {
    const answer = await sendBytes(origin, lines("GET /v2/liveness HTTP/1.1", "host: a", `x: ${"x".repeat(100_000)}`));
    const { detail } = expectFailure(answer, 413, "application/payload_too_large");
    // The limit of a body is not what was overstepped.
    expect(detail).not.toContain("131072");
  });

  it("a long path", async () => {
    const answer = await sendBytes(origin, lines(`GET /${"x".repeat(100_000)} HTTP/1.1`, "host: a"));
    expectFailure(answer, 413, "application/payload_too_large");
  });
});

describe("what is HTTP, but of a kind that no server need know, is answered with the envelope", () => {
  const close = "connection: close";

  it("no Host", async () => {
    expectFailure(await sendBytes(origin, lines("GET /v2/liveness HTTP/1.1")), 400, "application/invalid_input");
  });

  it("an expectation that nobody can meet", async () => {
    const answer = await sendBytes(origin, lines("GET /v2/liveness HTTP/1.1", "host: a", "expect: a-miracle", close));
    expectFailure(answer, 400, "application/invalid_input");
  });

  const chunkedAs = (encoding: string) => [
    "POST /v1/keys.listKeys HTTP/1.1",
    "host: a",
    `transfer-encoding: ${encoding}`,
  ];

  it.each<[string, string, string[]]>([
    ["two Hosts", "Host", ["GET /v2/liveness HTTP/1.1", "host: a", "Host: b"]],
    ["the same Host twice", "Host", ["GET /v2/liveness HTTP/1.1", "host: a", "host: a"]],
    ["HTTP/2.0 in a request line", "request", ["GET /v2/liveness HTTP/2.0", "host: a"]],
    ["HTTP/0.9 in a request line", "request", ["GET /v2/liveness HTTP/0.9", "host: a"]],
    ["a body by gzip, in chunks", "Transfer-Encoding", chunkedAs("gzip, chunked")],
    ["a body as it is, in chunks", "Transfer-Encoding", chunkedAs("identity, chunked")],
  ])("%s, by which a proxy may have been misled", async (_what, location, head) => {
    const answer = await sendBytes(origin, `${lines(...head)}0\r\n\r\n`);
    const { errors } = expectFailure(answer, 400, "application/invalid_input");
    expect(errors.map((error) => error.location)).toEqual([location]);
    expect(answer.headers.connection).toBe("close");
  });

  it("a request line of HTTP/0.9, which has no version", async () => {
    const answer = await sendBytes(origin, "GET /v2/liveness\r\n\r\n");
    expectFailure(answer, 400, "application/invalid_input");
  });

  it("OPTIONS *", async () => {
    const answer = await sendBytes(origin, lines("OPTIONS * HTTP/1.1", "host: a", close));
    expectFailure(answer, 404, "application/route_not_found");
  });

  it("CONNECT, which asks for a tunnel", async () => {
    const answer = await sendBytes(origin, lines("CONNECT example.com:443 HTTP/1.1", "host: example.com:443"));
    expectFailure(answer, 405, "application/method_not_allowed");
    expect(answer.headers.allow).toBe("GET, HEAD, POST");
  });

  it("CONNECT of a client that is gone by then, which ends nothing but its connection", async () => {
    const crashes: unknown[] = [];
    const crashed = (error: unknown) => void crashes.push(error);
    process.prependListener("uncaughtException", crashed);
    onTestFinished(() => void process.off("uncaughtException", crashed));
    const { hostname, port } = new URL(origin);
    for (let tries = 0; tries < 30; tries++) {
      const socket = connect(Number(port), hostname).on("error", () => {});
      await once(socket, "connect");
      socket.write(lines("CONNECT example.com:443 HTTP/1.1", "host: example.com:443"));
      setImmediate(() => socket.resetAndDestroy());
      await once(socket, "close");
      await sleep(10);
    }
    expect(crashes).toEqual([]);
  });

  it("an upgrade to another protocol is not taken up; the request is served", async () => {
    const upgrade = ["connection: upgrade, close", "upgrade: websocket"];
    expectSuccess(await sendBytes(origin, lines("GET /v2/liveness HTTP/1.0", "host: a", ...upgrade)));
  });
});
