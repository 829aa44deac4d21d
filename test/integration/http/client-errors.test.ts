import { once } from "node:events";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { expectError, expectSuccess, type HttpResponse, send, sendBytes } from "../../support/clients/http-requests.js";
import { openSocket, parseResponse, readUntilQuiet } from "../../support/clients/sockets.js";
import { openFileService } from "../../support/file-service.js";
import { openTestApp } from "../../support/harness.js";

const { origin, key } = await openFileService();
afterAll(async () => {
  expectSuccess(await send(origin, "/v1/keys.listKeys", { key }));
});

/** A request as text: its request line, then its headers. */
function lines(...requestLines: string[]): string {
  return `${requestLines.join("\r\n")}\r\n\r\n`;
}

describe("invalid HTTP gets an error envelope, and the connection is closed", () => {
  it.each([
    ["binary garbage", Buffer.from([0, 1, 2, 255, 254, 13, 10, 13, 10])],
    ["plain text", "hello, is anyone there?\r\n\r\n"],
    ["a TLS ClientHello", Buffer.from("16030100c8010000c40303", "hex")],
    ["a request line without a version", lines("GET /v2/liveness nonsense", "host: a")],
    ["an unknown method", lines("FETCH /v2/liveness HTTP/1.1", "host: a")],
    ["an unknown version", lines("GET /v2/liveness HTTP/9.9", "host: a")],
    ["HTTP/2 on this port", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ["a header without a colon", lines("GET /v2/liveness HTTP/1.1", "host: a", "nonsense")],
    ["a NUL in a header", lines("GET /v2/liveness HTTP/1.1", "host: a", "x: a\0b")],
    [
      "two Content-Length headers",
      lines("POST /v1/keys.listKeys HTTP/1.1", "host: a", "content-length: 1", "content-length: 2"),
    ],
    [
      "a Content-Length that is not a number",
      lines("POST /v1/keys.listKeys HTTP/1.1", "host: a", "content-length: many"),
    ],
    [
      "Content-Length and Transfer-Encoding together",
      lines("POST /v1/keys.listKeys HTTP/1.1", "host: a", "content-length: 5", "transfer-encoding: chunked"),
    ],
  ])("%s", async (_case, bytes) => {
    const response = await sendBytes(origin, bytes);
    const { errors } = expectError(response, 400, "application/invalid_input");
    expect(errors.map(({ location }) => location)).toEqual(["request"]);
    expect(response.headers.connection).toBe("close");
  });

  it("a malformed chunk in a body gets one response", async () => {
    const headers = lines(
      "POST /v1/keys.listKeys HTTP/1.1",
      "host: a",
      `authorization: Bearer ${key}`,
      "content-type: application/json",
      "transfer-encoding: chunked",
    );
    const response = await sendBytes(origin, `${headers}2\r\n{}\r\nnonsense\r\n`);
    expectError(response, 400, "application/invalid_input");
  });

  it("a Transfer-Encoding that is not known gets one response", async () => {
    const head = ["POST /v1/keys.listKeys HTTP/1.1", "host: a", "transfer-encoding: xchunked"];
    expectError(await sendBytes(origin, lines(...head)), 400, "application/invalid_input");
  });

  it("a malformed chunk in a body that was refused before gets no second response", async () => {
    const head = ["POST /v1/keys.listKeys HTTP/1.1", "host: a", "transfer-encoding: chunked"];
    const response = await sendInParts([lines(...head), "nonsense\r\n"]);
    expect(response.headers.connection).toBe("keep-alive");
    expectError(response, 401, "authentication/missing");
  });

  it("invalid bytes after a valid request: the request gets its response first", async () => {
    const body = '{"externalId":"with more behind it"}';
    const headers = lines(
      "POST /v2/identities.createIdentity HTTP/1.1",
      "host: a",
      `authorization: Bearer ${key}`,
      "content-type: application/json",
      `content-length: ${body.length}`,
    );
    const response = await sendBytes(origin, `${headers}${body}nonsense\r\n\r\n`);
    expect(response.status).toBe(200);
    expect(response.text).toMatch(/"identityId":.*HTTP\/1\.1 400 .*"location":"request"/s);
  });
});

describe("oversized headers are refused with payload_too_large", () => {
  it("one large header", async () => {
    const response = await sendBytes(
      origin,
      lines("GET /v2/liveness HTTP/1.1", "host: a", `x: ${"x".repeat(100_000)}`),
    );
    const { detail } = expectError(response, 413, "application/payload_too_large");
    // The detail must not name the body limit, which was not exceeded.
    expect(detail).not.toContain("131072");
  });

  it("a long path", async () => {
    const response = await sendBytes(origin, lines(`GET /${"x".repeat(100_000)} HTTP/1.1`, "host: a"));
    expectError(response, 413, "application/payload_too_large");
  });
});

describe("valid HTTP that this port does not support gets an error envelope", () => {
  const close = "connection: close";

  it("a missing Host header", async () => {
    expectError(await sendBytes(origin, lines("GET /v2/liveness HTTP/1.1")), 400, "application/invalid_input");
  });

  it("an unknown expectation in the Expect header", async () => {
    const response = await sendBytes(origin, lines("GET /v2/liveness HTTP/1.1", "host: a", "expect: a-miracle", close));
    expectError(response, 400, "application/invalid_input");
  });

  const chunkedAs = (encoding: string) => [
    "POST /v1/keys.listKeys HTTP/1.1",
    "host: a",
    `transfer-encoding: ${encoding}`,
  ];

  it.each<[string, string, string[]]>([
    ["two Host headers", "Host", ["GET /v2/liveness HTTP/1.1", "host: a", "Host: b"]],
    ["the same Host header twice", "Host", ["GET /v2/liveness HTTP/1.1", "host: a", "host: a"]],
    ["HTTP/2.0 in a request line", "request", ["GET /v2/liveness HTTP/2.0", "host: a"]],
    ["HTTP/0.9 in a request line", "request", ["GET /v2/liveness HTTP/0.9", "host: a"]],
    ["Transfer-Encoding: gzip, chunked", "Transfer-Encoding", chunkedAs("gzip, chunked")],
    ["Transfer-Encoding: identity, chunked", "Transfer-Encoding", chunkedAs("identity, chunked")],
    [
      "Transfer-Encoding with HTTP/1.0",
      "Transfer-Encoding",
      ["POST /v1/keys.listKeys HTTP/1.0", "connection: keep-alive", "transfer-encoding: chunked"],
    ],
    ["two Host headers and a path that cannot be decoded", "Host", ["GET /%zz HTTP/1.1", "host: a", "Host: b"]],
    [
      "Transfer-Encoding with HTTP/1.0 and a path that cannot be decoded",
      "Transfer-Encoding",
      ["POST /%zz HTTP/1.0", "connection: keep-alive", "transfer-encoding: chunked"],
    ],
  ])(
    "request smuggling: %s, which a proxy may interpret differently, is refused",
    async (_case, location, requestLines) => {
      const response = await sendBytes(origin, `${lines(...requestLines)}0\r\n\r\n`);
      const { errors } = expectError(response, 400, "application/invalid_input");
      expect(errors.map((error) => error.location)).toEqual([location]);
      expect(response.headers.connection).toBe("close");
    },
  );

  it("an HTTP/0.9 request line, without a version", async () => {
    const response = await sendBytes(origin, "GET /v2/liveness\r\n\r\n");
    expectError(response, 400, "application/invalid_input");
  });

  it("OPTIONS *", async () => {
    const response = await sendBytes(origin, lines("OPTIONS * HTTP/1.1", "host: a", close));
    expectError(response, 404, "application/route_not_found");
  });

  it("a CONNECT request is refused", async () => {
    const response = await sendBytes(origin, lines("CONNECT example.com:443 HTTP/1.1", "host: example.com:443"));
    expectError(response, 405, "application/method_not_allowed");
    expect(response.headers.allow).toBe("GET, HEAD, POST");
  });

  it("a CONNECT request behind another is refused after the other has its response", async () => {
    const connectRequest = lines("CONNECT example.com:443 HTTP/1.1", "host: example.com:443");
    const response = await sendBytes(origin, lines("GET /v2/liveness HTTP/1.1", "host: a") + connectRequest);
    expect(response.status).toBe(200);
    expect(response.text).toMatch(/"status":"alive".*HTTP\/1\.1 405/s);
  });

  it("a client that disconnects after CONNECT does not crash the process", async () => {
    const crashes: unknown[] = [];
    const onCrash = (error: unknown) => void crashes.push(error);
    process.prependListener("uncaughtException", onCrash);
    onTestFinished(() => void process.off("uncaughtException", onCrash));
    const { hostname, port } = new URL(origin);
    for (let attempt = 0; attempt < 30; attempt++) {
      const socket = connect(Number(port), hostname).on("error", () => {});
      await once(socket, "connect");
      socket.write(lines("CONNECT example.com:443 HTTP/1.1", "host: example.com:443"));
      setImmediate(() => socket.resetAndDestroy());
      await once(socket, "close");
      await sleep(10);
    }
    expect(crashes).toEqual([]);
  });

  it("an upgrade to another protocol is ignored, and the request is served", async () => {
    const upgrade = ["connection: upgrade, close", "upgrade: websocket"];
    expectSuccess(await sendBytes(origin, lines("GET /v2/liveness HTTP/1.0", "host: a", ...upgrade)));
  });

  const upgrade = ["connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAEAAEAA"];
  const inner = lines("GET /v2/liveness HTTP/1.1", "host: a");
  const outer = ["host: a", "content-type: application/json", `content-length: ${inner.length}`];

  it("request smuggling: behind a request to upgrade, no body is taken for a request", async () => {
    const first = lines("GET /v2/liveness HTTP/1.1", "host: a", ...upgrade);
    const response = await sendInParts([first + lines("POST /v1/keys.listKeys HTTP/1.1", ...outer), inner]);
    expectSuccess(response); // alone, because the rest would not be JSON
    expect(response.headers.connection).toBe("close");
  });

  it("request smuggling: nor is it behind one that is refused because of overload", async () => {
    const busy = await openTestApp({ guard: { accepts: () => false } });
    onTestFinished(() => busy.close());
    const first = lines("POST /v1/keys.listKeys HTTP/1.1", "host: a", "content-length: 0", ...upgrade);
    const parts = [first + lines("POST /v1/keys.listKeys HTTP/1.1", ...outer), inner];
    const response = await sendInParts(parts, busy.httpUrl);
    expectError(response, 503, "application/service_unavailable");
    expect(response.headers.connection).toBe("close");
  });

  it("a request with a body and an upgrade, as Java's client begins a connection, is served", async () => {
    const body = "{}";
    const head = [...upgrade, "content-type: application/json", `content-length: ${body.length}`];
    const authorization = `authorization: Bearer ${key}`;
    const request = lines("POST /v1/keys.listKeys HTTP/1.1", "host: a", authorization, ...head);
    for (const parts of [[request + body], [request, body]]) expectSuccess(await sendInParts(parts));
  });
});

describe("a request target with a scheme and a host, as for a proxy,", () => {
  const close = "connection: close";

  it.each([
    ["http://a/v2/liveness", "1.1", "host: a"],
    ["HTTPS://API.example:8443/v2/liveness?x=http://b/", "1.1", "host: api.Example:8443"],
    ["http://a/v2/liveness", "1.0", "x: no Host header"],
  ])("is accepted: %s HTTP/%s with %s", async (target, version, host) => {
    expectSuccess(await sendBytes(origin, lines(`GET ${target} HTTP/${version}`, host, close)));
  });

  it.each(["http://a", "http://a?x"])("may have no path: %s", async (target) => {
    const response = await sendBytes(origin, lines(`GET ${target} HTTP/1.1`, "host: a", close));
    expect(expectSuccess(response)).toMatchObject({ name: "Latchkey" }); // the home page
  });

  it.each([
    ["http://b/v2/liveness", "host: a"],
    ["http://a:80/v2/liveness", "host: a"],
    ["http://user@a/v2/liveness", "host: a"],
    ["ftp://a/v2/liveness", "host: a"],
  ])("is not found if its host is not that of the Host header: %s with %s", async (target, host) => {
    const response = await sendBytes(origin, lines(`GET ${target} HTTP/1.1`, host, close));
    expectError(response, 404, "application/route_not_found");
  });

  it("is refused without a Host header, and with two", async () => {
    for (const hosts of [[], ["host: a", "host: a"]]) {
      const response = await sendBytes(origin, lines("GET http://a/v2/liveness HTTP/1.1", ...hosts));
      expect(expectError(response, 400, "application/invalid_input").errors[0]?.location).toBe("Host");
    }
  });
});

/** Sends bytes in parts, each after the service has read the one before it. */
async function sendInParts(parts: readonly string[], address = origin): Promise<HttpResponse> {
  const socket = openSocket(address);
  const received = readUntilQuiet(socket, 1_000);
  for (const part of parts) {
    socket.write(part);
    await sleep(100);
  }
  const { status, headers, body } = parseResponse(Buffer.from(await received, "latin1"));
  return { origin: address, host: "a", status, headers, text: body.toString() };
}
