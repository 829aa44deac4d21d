import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { request as requestHttps } from "node:https";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { Health } from "../../../gen/grpc/health/v1/health_pb.js";
import {
  type Authority,
  createAuthority,
  type Files,
  type Pair,
  writeFiles,
} from "../../support/certificate-authority.js";
import { callers, connectTls, type Trust } from "../../support/clients/tls.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { startStopwatch } from "../../support/stopwatch.js";

let authority: Authority;
let pair: Pair;
beforeAll(async () => {
  authority = await createAuthority();
  pair = await authority.issue();
});

const protocols = ["http", "connect", "grpc-web", "grpc, by connect-node", "grpc, by grpc-js"] as const;

/** A service with its certificates, which can be exchanged, and its log. */
async function openSecured(mutual: boolean, presented = pair) {
  const files = writeFiles(presented, authority.cert);
  const { certFile, keyFile, caFile } = files;
  const lines: { msg: string; reason?: string; method?: string }[] = [];
  const log = pino({ level: "info" }, { write: (line) => lines.push(JSON.parse(line)) });
  const tls = { certFile, keyFile, clientCaFile: mutual ? caFile : undefined };
  const app = await openTestApp({ tls, log });
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
  let secured: Awaited<ReturnType<typeof openSecured>>;
  let app: TestApp;
  let files: Files;
  beforeAll(async () => {
    secured = await openSecured(false);
    ({ app, files } = secured);
  });
  afterAll(() => secured.close());

  it.each(protocols)("%s is served to who trusts the certificate, and to nobody else", async (protocol) => {
    expect(await callers(app, { ca: authority.cert })[protocol]()).toBe(0);
    const { cert: stranger } = await createAuthority("Somebody else");
    await expect(callers(app, { ca: stranger })[protocol]()).rejects.toThrow(/certificate|signature/);
  });

  it("who speaks plain text is refused on both ports, and is no call", async () => {
    const calls = secured.lines.filter(({ msg }) => msg === "call").length;
    const plain = get(app.httpUrl.replace("https:", "http:"));
    await expect(once(plain, "response")).rejects.toThrow(/hang up|ECONNRESET/);
    const health = createClient(Health, createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` }));
    await expect(health.check({}, { timeoutMs: 5_000 })).rejects.toThrow(/unavailable|aborted|canceled/);
    expect(secured.lines.filter(({ msg }) => msg === "call")).toHaveLength(calls);
  });

  it.each(["httpUrl", "grpcAddress"] as const)("TLS 1.2 is taken and TLS 1.1 refused, by %s", async (port) => {
    const ciphers = "DEFAULT@SECLEVEL=0"; // or else the client itself would refuse
    const old = { ca: authority.cert, ciphers, minVersion: "TLSv1", maxVersion: "TLSv1.1" } as const;
    await expect(connectTls(app[port], old)).rejects.toThrow(/protocol version/);
    const socket = await connectTls(app[port], { ca: authority.cert, maxVersion: "TLSv1.2" });
    expect(socket.getProtocol()).toBe("TLSv1.2");
    socket.destroy();
  });

  it("a renewed certificate is presented to new connections, while an old connection goes on; a broken one is not taken", async () => {
    const serialOf = async (address: string) => {
      const socket = await connectTls(address, { ca: authority.cert });
      const { serialNumber } = socket.getPeerCertificate();
      socket.destroy();
      return serialNumber;
    };
    const serials = () => Promise.all([serialOf(app.httpUrl), serialOf(app.grpcAddress)]);
    const [before] = await serials();
    const old = [await openHttp(app, { ca: authority.cert }), await openGrpc(app, { ca: authority.cert })];
    const said = (msg: RegExp) => secured.lines.filter((line) => msg.test(line.msg));

    const renewed = await authority.issue();
    files.write({ cert: renewed.cert }); // the key is still that of the old one
    await expect.poll(() => said(/cannot be used/), { timeout: 10_000 }).toHaveLength(1);
    expect(said(/cannot be used/)[0]?.reason).toMatch(/TLS_KEY_FILE must be the key of the certificate/);
    expect(await serials()).toEqual([before, before]);

    files.write({ key: renewed.key });
    await expect.poll(() => said(/were renewed/), { timeout: 10_000 }).toHaveLength(1);
    const [http, grpc] = await serials();
    expect(http).not.toBe(before);
    expect(grpc).toBe(http);
    for (const ask of old) expect(await ask()).toBe(200);
    for (const protocol of protocols) expect(await callers(app, { ca: authority.cert })[protocol](), protocol).toBe(0);
  });
});

describe.each(["ec", "rsa"] as const)("with a certificate of the kind %s, of TLS 1.2", (kind) => {
  let signer: Authority;
  let secured: Awaited<ReturnType<typeof openSecured>>;
  beforeAll(async () => {
    signer = await createAuthority("Signer", kind);
    secured = await openSecured(false, await signer.issue());
  });
  afterAll(() => secured.close());

  const signed = { ec: "ECDSA", rsa: "RSA" }[kind];
  const agree = (port: "httpUrl" | "grpcAddress", cipher: string) =>
    connectTls(secured.app[port], {
      ca: signer.cert,
      maxVersion: "TLSv1.2",
      ciphers: `${cipher}:@SECLEVEL=0`, // or else the client itself would refuse
    });

  describe.each(["httpUrl", "grpcAddress"] as const)("%s", (port) => {
    it.each(["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"])("takes %s with ECDHE", async (cipher) => {
      const socket = await agree(port, `ECDHE-${signed}-${cipher}`);
      expect(socket.getCipher()).toMatchObject({ name: `ECDHE-${signed}-${cipher}` });
      expect(socket.getEphemeralKeyInfo()).toMatchObject({ type: "ECDH" });
      socket.destroy();
    });

    it.each([
      `ECDHE-${signed}-AES128-SHA`,
      `ECDHE-${signed}-AES256-SHA384`,
      "AES128-SHA",
      "AES256-SHA",
      "AES128-SHA256",
      "AES128-GCM-SHA256",
    ])("does not take %s, which lacks forward secrecy or authenticated encryption", async (cipher) => {
      await expect(agree(port, cipher)).rejects.toThrow(/handshake failure/);
    });
  });
});

describe("Strict-Transport-Security", () => {
  it("is in every answer over HTTPS: of JSON, pages, Connect and refusals", async () => {
    const { app, close } = await openSecured(false);
    onTestFinished(close);
    for (const path of ["/livez", "/", "/docs", "/nothing", "/v2/keys.listKeys", "/latchkey.v1.KeysService/ListKeys"]) {
      const sent = requestHttps(`${app.httpUrl}${path}`, { ca: authority.cert, agent: false }).end();
      const [{ headers }] = (await once(sent, "response")) as [IncomingMessage];
      expect(headers["strict-transport-security"], path).toMatch(/^max-age=\d{7,}$/);
    }
  });

  it("is in none without TLS, where browsers must not heed it", async () => {
    const app = await openTestApp();
    onTestFinished(() => app.close());
    expect((await fetch(`${app.httpUrl}/livez`)).headers.get("strict-transport-security")).toBe(null);
  });
});

describe("with TLS_CLIENT_CA_FILE", () => {
  let secured: Awaited<ReturnType<typeof openSecured>>;
  beforeAll(async () => {
    secured = await openSecured(true);
  });
  afterAll(() => secured.close());

  it.each(protocols)(
    "%s is served to a client whose certificate that authority signed, and to no other",
    async (protocol) => {
      const call = (trust: Partial<Trust>) => callers(secured.app, { ca: authority.cert, ...trust })[protocol]();
      expect(await call(await authority.issue())).toBe(0);
      await expect(call({}), "without a certificate").rejects.toThrow();
      const impostor = await createAuthority(); // of the same name
      await expect(call(await impostor.issue()), "with one of another authority").rejects.toThrow();
    },
  );
});

describe("a stop over TLS is not held up by", () => {
  it.each(["httpUrl", "grpcAddress"] as const)("a connection to %s that never asks anything", async (port) => {
    const { app, close } = await openSecured(false);
    const socket = await connectTls(app[port], { ca: authority.cert });
    const closed = once(socket.resume(), "close");
    // So the connection before these has been accepted.
    for (const protocol of protocols) await callers(app, { ca: authority.cert })[protocol]();
    const elapsed = startStopwatch();
    await close();
    await closed;
    expect(elapsed(), "less than the 10 s that running calls would get").toBeLessThan(8_000);
  });
});

describe("certificates that cannot be used are told by the name of the variable:", () => {
  it.each([
    ["a certificate that is not there", { certFile: "/no/such/file" }, /^TLS_CERT_FILE must be .* \/no\/such\/file/],
    ["a key that is not there", { keyFile: "/no/such/file" }, /^TLS_KEY_FILE must be .* \/no\/such\/file/],
    ["an authority that is not there", { clientCaFile: "/no/such/file" }, /^TLS_CLIENT_CA_FILE must be/],
    ["a certificate that is none", { certFile: "package.json" }, /^TLS_CERT_FILE must contain a certificate in PEM/],
    ["a key that is none", { keyFile: "package.json" }, /^TLS_KEY_FILE must contain a private key in PEM/],
    [
      "an authority that is none",
      { clientCaFile: "package.json" },
      /^TLS_CLIENT_CA_FILE must contain certificates in PEM/,
    ],
  ])("%s", async (_, wrong, sentence) => {
    const { files, tls } = tlsFiles(pair);
    await expect(openTestApp({ tls: { ...tls, ...wrong } })).rejects.toThrow(sentence);
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

  function tlsFiles(written: Pair) {
    const files = writeFiles(written, authority.cert);
    return { files, tls: { certFile: files.certFile, keyFile: files.keyFile, clientCaFile: undefined } };
  }
});

/** One HTTP connection, on which can be asked again and again. */
async function openHttp({ httpUrl }: TestApp, trust: Trust) {
  const socket = await connectTls(httpUrl, { ...trust, ALPNProtocols: ["http/1.1"] });
  onTestFinished(() => void socket.destroy());
  return async () => {
    socket.write("GET /v2/liveness HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const [bytes] = (await once(socket, "data")) as [Buffer];
    return Number(/^HTTP\/1.1 (\d+)/.exec(bytes.toString())?.[1]);
  };
}

/** One HTTP/2 connection, on which can be asked again and again. */
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
