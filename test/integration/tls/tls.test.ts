import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { Agent, request as requestHttps } from "node:https";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { Health } from "../../../gen/grpc/health/v1/health_pb.js";
import type { AppOptions } from "../../../src/app.js";
import { createLog } from "../../../src/observe/log.js";
import {
  type Authority,
  createAuthority,
  type Files,
  type Pair,
  writeFiles,
} from "../../support/certificate-authority.js";
import type { Trust } from "../../support/clients/grpc-js.js";
import { callers, connectTls } from "../../support/clients/tls.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { startStopwatch } from "../../support/stopwatch.js";

let authority: Authority;
let pair: Pair;
beforeAll(async () => {
  authority = await createAuthority();
  pair = await authority.issue();
});

const protocols = ["http", "connect", "grpc-web", "grpc, by connect-node", "grpc, by grpc-js"] as const;

/** Starts a service with TLS. Its certificate files can be replaced, and its log lines are collected. */
async function openWithTls(mutual: boolean, certificate = pair, guard?: AppOptions["guard"]) {
  const files = writeFiles(certificate, authority.cert);
  const { certFile, keyFile, caFile } = files;
  const lines: { msg: string; reason?: string; method?: string }[] = [];
  const log = createLog("info", { destination: { write: (line) => lines.push(JSON.parse(line)) } });
  const tls = { certFile, keyFile, clientCaFile: mutual ? caFile : undefined };
  const app = await openTestApp({ tls, log, ...(guard && { guard }) });
  return {
    app,
    files,
    lines,
    async close() {
      await app.close();
      await files.remove();
    },
  };
}

describe("with TLS_CERT_FILE and TLS_KEY_FILE", () => {
  let secured: Awaited<ReturnType<typeof openWithTls>>;
  let app: TestApp;
  let files: Files;
  beforeAll(async () => {
    secured = await openWithTls(false);
    ({ app, files } = secured);
  });
  afterAll(() => secured.close());

  it.each(protocols)(
    "%s: a client that trusts the certificate is served, any other client rejects it",
    async (protocol) => {
      expect(await callers(app, { ca: authority.cert })[protocol]()).toBe(0);
      const other = await createAuthority("Another authority");
      await expect(callers(app, { ca: other.cert })[protocol]()).rejects.toThrow(/certificate|signature/);
    },
  );

  it("plaintext connections are refused on both ports, and are not logged as calls", async () => {
    const calls = secured.lines.filter(({ msg }) => msg === "call").length;
    const plain = get(app.httpUrl.replace("https:", "http:"));
    await expect(once(plain, "response")).rejects.toThrow(/hang up|ECONNRESET/);
    const health = createClient(Health, createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` }));
    await expect(health.check({}, { timeoutMs: 5_000 })).rejects.toThrow(/unavailable|aborted|canceled/);
    expect(secured.lines.filter(({ msg }) => msg === "call")).toHaveLength(calls);
  });

  it.each(["httpUrl", "grpcAddress"] as const)("%s accepts TLS 1.2 and refuses TLS 1.1", async (port) => {
    const ciphers = "DEFAULT@SECLEVEL=0"; // otherwise the client itself would refuse
    const old = { ca: authority.cert, ciphers, minVersion: "TLSv1", maxVersion: "TLSv1.1" } as const;
    await expect(connectTls(app[port], old)).rejects.toThrow(/protocol version/);
    const socket = await connectTls(app[port], { ca: authority.cert, maxVersion: "TLSv1.2" });
    expect(socket.getProtocol()).toBe("TLSv1.2");
    socket.destroy();
  });

  it("certificate reload: new connections get the new one, open ones continue, a broken one is ignored", async () => {
    const serialOf = async (address: string) => {
      const socket = await connectTls(address, { ca: authority.cert });
      const { serialNumber } = socket.getPeerCertificate();
      socket.destroy();
      return serialNumber;
    };
    const serials = () => Promise.all([serialOf(app.httpUrl), serialOf(app.grpcAddress)]);
    const [before] = await serials();
    const openConnections = [await openHttp(app, { ca: authority.cert }), await openGrpc(app, { ca: authority.cert })];
    const logged = (msg: RegExp) => secured.lines.filter((line) => msg.test(line.msg));

    const renewed = await authority.issue();
    files.write({ cert: renewed.cert }); // the key file still has the old key
    await expect.poll(() => logged(/cannot be used/), { timeout: 10_000 }).toHaveLength(1);
    expect(logged(/cannot be used/)[0]?.reason).toMatch(/TLS_KEY_FILE must be the key of the certificate/);
    expect(await serials()).toEqual([before, before]);

    files.write({ key: renewed.key });
    await expect.poll(() => logged(/were renewed/), { timeout: 10_000 }).toHaveLength(1);
    const [http, grpc] = await serials();
    expect(http).not.toBe(before);
    expect(grpc).toBe(http);
    for (const request of openConnections) expect(await request()).toBe(200);
    for (const protocol of protocols) expect(await callers(app, { ca: authority.cert })[protocol](), protocol).toBe(0);
  });
});

describe.each(["ec", "rsa"] as const)("TLS 1.2 cipher suites with an %s certificate", (kind) => {
  let signer: Authority;
  let secured: Awaited<ReturnType<typeof openWithTls>>;
  beforeAll(async () => {
    signer = await createAuthority("Signer", kind);
    secured = await openWithTls(false, await signer.issue());
  });
  afterAll(() => secured.close());

  const signature = { ec: "ECDSA", rsa: "RSA" }[kind];
  const negotiate = (port: "httpUrl" | "grpcAddress", cipher: string) =>
    connectTls(secured.app[port], {
      ca: signer.cert,
      maxVersion: "TLSv1.2",
      ciphers: `${cipher}:@SECLEVEL=0`, // otherwise the client itself would refuse
    });

  describe.each(["httpUrl", "grpcAddress"] as const)("%s", (port) => {
    it.each(["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"])(
      "accepts %s with ECDHE",
      async (cipher) => {
        const socket = await negotiate(port, `ECDHE-${signature}-${cipher}`);
        expect(socket.getCipher()).toMatchObject({ name: `ECDHE-${signature}-${cipher}` });
        expect(socket.getEphemeralKeyInfo()).toMatchObject({ type: "ECDH" });
        socket.destroy();
      },
    );

    it.each([
      `ECDHE-${signature}-AES128-SHA`,
      `ECDHE-${signature}-AES256-SHA384`,
      "AES128-SHA",
      "AES256-SHA",
      "AES128-SHA256",
      "AES128-GCM-SHA256",
    ])("refuses %s, which lacks forward secrecy or authenticated encryption", async (cipher) => {
      await expect(negotiate(port, cipher)).rejects.toThrow(/handshake failure/);
    });
  });
});

describe("Strict-Transport-Security", () => {
  it("is in every HTTPS response: JSON, pages, Connect and errors", async () => {
    const { app, close } = await openWithTls(false);
    onTestFinished(close);
    for (const path of ["/livez", "/", "/docs", "/nothing", "/v2/keys.listKeys", "/latchkey.v1.KeysService/ListKeys"]) {
      const sent = requestHttps(`${app.httpUrl}${path}`, { ca: authority.cert, agent: false }).end();
      const [{ headers }] = (await once(sent, "response")) as [IncomingMessage];
      expect(headers["strict-transport-security"], path).toMatch(/^max-age=\d{7,}$/);
    }
  });

  it("is in the responses to shed requests", async () => {
    const { app, close } = await openWithTls(false, pair, { accepts: () => false });
    onTestFinished(close);
    const agent = new Agent({ keepAlive: true }); // shed responses that close the connection are sent in another way
    onTestFinished(() => agent.destroy());
    const sent = requestHttps(`${app.httpUrl}/v1/keys.listKeys`, { ca: authority.cert, agent }).end();
    const [{ statusCode, headers }] = (await once(sent, "response")) as [IncomingMessage];
    expect(statusCode).toBe(503);
    expect(headers["strict-transport-security"]).toMatch(/^max-age=\d{7,}$/);
  });

  it("is in no response without TLS, where browsers must ignore it", async () => {
    const app = await openTestApp();
    onTestFinished(() => app.close());
    expect((await fetch(`${app.httpUrl}/livez`)).headers.get("strict-transport-security")).toBe(null);
  });
});

describe("with TLS_CLIENT_CA_FILE", () => {
  let secured: Awaited<ReturnType<typeof openWithTls>>;
  beforeAll(async () => {
    secured = await openWithTls(true);
  });
  afterAll(() => secured.close());

  it.each(protocols)(
    "mutual TLS over %s: only clients with a certificate of that authority are served",
    async (protocol) => {
      const call = (trust: Partial<Trust>) => callers(secured.app, { ca: authority.cert, ...trust })[protocol]();
      expect(await call(await authority.issue())).toBe(0);
      await expect(call({}), "without a certificate").rejects.toThrow();
      const impostor = await createAuthority(); // with the same name
      await expect(call(await impostor.issue()), "with a certificate of another authority").rejects.toThrow();
    },
  );
});

it("a client CA file may contain several certificates, with comments and other blocks between them", async () => {
  const other = await createAuthority("Another authority");
  const files = writeFiles(pair, `# one\n${authority.cert}\n${pair.key}\n# --- another ---\r\n${other.cert}`);
  const app = await openTestApp({ tls: { ...files, clientCaFile: files.caFile } });
  onTestFinished(async () => {
    await app.close();
    await files.remove();
  });
  for (const signer of [authority, other]) {
    expect(await callers(app, { ca: authority.cert, ...(await signer.issue()) }).http()).toBe(0);
  }
});

describe("graceful shutdown with TLS is not delayed by", () => {
  it.each(["httpUrl", "grpcAddress"] as const)("a connection to %s that never sends a request", async (port) => {
    const { app, close } = await openWithTls(false);
    const socket = await connectTls(app[port], { ca: authority.cert });
    const closed = once(socket.resume(), "close");
    // After these calls, the earlier connection has certainly been accepted.
    for (const protocol of protocols) await callers(app, { ca: authority.cert })[protocol]();
    const elapsed = startStopwatch();
    await close();
    await closed;
    expect(elapsed(), "less than the 10 s that calls in flight would get").toBeLessThan(8_000);
  });
});

describe("startup with unusable certificates fails with an error that names the variable:", () => {
  it.each([
    ["a missing certificate file", { certFile: "/no/such/file" }, /^TLS_CERT_FILE must be .* \/no\/such\/file/],
    ["a missing key file", { keyFile: "/no/such/file" }, /^TLS_KEY_FILE must be .* \/no\/such\/file/],
    ["a missing client CA file", { clientCaFile: "/no/such/file" }, /^TLS_CLIENT_CA_FILE must be/],
    [
      "a certificate file that is not PEM",
      { certFile: "package.json" },
      /^TLS_CERT_FILE must contain a certificate in PEM/,
    ],
    ["a key file that is not PEM", { keyFile: "package.json" }, /^TLS_KEY_FILE must contain a private key in PEM/],
    [
      "a client CA file that is not PEM",
      { clientCaFile: "package.json" },
      /^TLS_CLIENT_CA_FILE must contain certificates in PEM/,
    ],
  ])("%s", async (_, invalid, message) => {
    const { files, tls } = tlsFiles(pair);
    await expect(openTestApp({ tls: { ...tls, ...invalid } })).rejects.toThrow(message);
    await files.remove();
  });

  it("the key of another certificate", async () => {
    const { key } = await authority.issue();
    const { files, tls } = tlsFiles({ ...pair, key });
    await expect(openTestApp({ tls })).rejects.toThrow(
      /^TLS_KEY_FILE must be the key of the certificate in TLS_CERT_FILE/,
    );
    await files.remove();
  });

  it.each<[string, (ca: string) => string]>([
    ["ends too early", (ca) => ca.slice(0, 300)],
    ["lacks its last line", (ca) => ca.replace(/-----END.*/, "")],
    ["is damaged", (ca) => `${ca.slice(0, 300)}!${ca.slice(301)}`],
  ])("a client CA file whose second certificate %s", async (_, damaged) => {
    const { cert } = await createAuthority("Another authority");
    const files = writeFiles(pair, `${authority.cert}\n${damaged(cert)}\n${authority.cert}`);
    onTestFinished(() => files.remove());
    await expect(openTestApp({ tls: { ...files, clientCaFile: files.caFile } })).rejects.toThrow(
      /^TLS_CLIENT_CA_FILE must contain certificates in PEM format, and .*ca\.crt does not\.$/,
    );
  });

  function tlsFiles(certificate: Pair) {
    const files = writeFiles(certificate, authority.cert);
    return { files, tls: { certFile: files.certFile, keyFile: files.keyFile, clientCaFile: undefined } };
  }
});

/** Opens one HTTP/1.1 connection. The returned function sends a request on it. */
async function openHttp({ httpUrl }: TestApp, trust: Trust) {
  const socket = await connectTls(httpUrl, { ...trust, ALPNProtocols: ["http/1.1"] });
  onTestFinished(() => void socket.destroy());
  return async () => {
    socket.write("GET /v2/liveness HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const [bytes] = (await once(socket, "data")) as [Buffer];
    return Number(/^HTTP\/1.1 (\d+)/.exec(bytes.toString())?.[1]);
  };
}

/** Opens one HTTP/2 connection. The returned function sends a request on it. */
async function openGrpc({ grpcAddress }: TestApp, trust: Trust) {
  const session = connectHttp2(`https://${grpcAddress}`, trust);
  onTestFinished(() => session.destroy());
  await once(session, "connect");
  return async () => {
    const stream = session.request({
      ":method": "POST",
      ":path": "/grpc.health.v1.Health/Check",
      "content-type": "application/grpc",
      te: "trailers",
    });
    stream.end(Buffer.alloc(5));
    stream.resume();
    const [headers] = await once(stream, "response");
    return headers[":status"];
  };
}
