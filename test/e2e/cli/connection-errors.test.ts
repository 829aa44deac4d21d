import { once } from "node:events";
import { createServer as createHttp2Server } from "node:http2";
import { type AddressInfo, connect, createServer, type Server } from "node:net";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createAuthority, type Files, writeFiles } from "../../support/certificate-authority.js";
import { openFileApp } from "../../support/file-service.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import { latchkey } from "./command-line.js";

const plain = await openFileApp();
let files: Files;
let otherFiles: Files;
let secured: TestApp;
let mutual: TestApp;
beforeAll(async () => {
  const [authority, other] = await Promise.all([createAuthority(), createAuthority("Other CA")]);
  files = writeFiles(await authority.issue(), authority.cert);
  otherFiles = writeFiles(await other.issue(), other.cert);
  const { certFile, keyFile, caFile } = files;
  secured = await openTestApp({ tls: { certFile, keyFile, clientCaFile: undefined } });
  mutual = await openTestApp({ tls: { certFile, keyFile, clientCaFile: caFile } });
});
afterAll(async () => {
  await secured.close();
  await mutual.close();
  await files.remove();
  await otherFiles.remove();
});

/** Runs a command with this address, and returns what it prints about the error. */
async function errorAt(address: string, env: NodeJS.ProcessEnv = {}): Promise<string> {
  const settings = { LATCHKEY_ADDRESS: address, LATCHKEY_CREDENTIAL: operatorKey, ...env };
  const { exitCode, stdout, stderr } = await latchkey(["workspace", "list"], settings);
  expect({ exitCode, stdout }).toEqual({ exitCode: 7, stdout: "" });
  // One sentence or two, without the words of a library.
  expect(stderr).toMatch(/^error: [^\n]+\.\n$/);
  expect(stderr).not.toMatch(/ECONN|ENOTFOUND|routines|openssl|\bat \/|ConnectError/i);
  return stderr;
}

async function listen(server: Server, host = "127.0.0.1"): Promise<string> {
  server.listen(0, host);
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return `${host}:${(server.address() as AddressInfo).port}`;
}

describe("a command that gets no response says what is wrong and what to do", () => {
  it("if nothing listens", async () => {
    expect(await errorAt("127.0.0.1:1")).toMatch(/Nothing listens at 127\.0\.0\.1:1\. .*`latchkey serve`.*--address/);
  });

  it("if the host name is unknown", async () => {
    expect(await errorAt("keys.invalid:50051")).toMatch(/keys\.invalid cannot be resolved.*--address/);
  });

  it("if the service does not use TLS", async () => {
    const { grpcAddress } = plain;
    expect(await errorAt(`https://${grpcAddress}`)).toMatch(
      new RegExp(`does not use TLS. .*http://${grpcAddress} with --address`),
    );
  });

  it("if the service uses TLS", async () => {
    const { grpcAddress } = secured;
    expect(await errorAt(grpcAddress)).toMatch(
      new RegExp(`uses TLS, .*https://${grpcAddress} with --address.*LATCHKEY_CA_FILE`),
    );
  });

  it("if the CA of the certificate is unknown, or another one", async () => {
    const expected = /does not trust the certificate of 127\.0\.0\.1:\d+\. Set LATCHKEY_CA_FILE/;
    expect(await errorAt(`https://${secured.grpcAddress}`)).toMatch(expected);
    expect(await errorAt(secured.grpcAddress, { LATCHKEY_CA_FILE: otherFiles.caFile })).toMatch(expected);
  });

  it("if the certificate is for another name", async () => {
    const port = Number(secured.grpcAddress.split(":")[1]);
    const server = createServer((socket) => {
      const upstream = connect({ host: "127.0.0.1", port });
      socket.pipe(upstream).pipe(socket);
      socket.on("error", () => upstream.destroy());
      upstream.on("error", () => socket.destroy());
    });
    const address = await listen(server, "127.0.0.2");
    expect(await errorAt(address, { LATCHKEY_CA_FILE: files.caFile })).toMatch(
      /not valid for the name 127\.0\.0\.2, but for DNS:localhost, IP Address:127\.0\.0\.1\. Use a name of the certificate/,
    );
  });

  it("if the service requires a client certificate, of a CA that it trusts", async () => {
    const expected = /requires a client certificate.*LATCHKEY_CERT_FILE and LATCHKEY_KEY_FILE/;
    const { caFile } = files;
    expect(await errorAt(mutual.grpcAddress, { LATCHKEY_CA_FILE: caFile })).toMatch(expected);
    const { certFile, keyFile } = otherFiles;
    const env = { LATCHKEY_CA_FILE: caFile, LATCHKEY_CERT_FILE: certFile, LATCHKEY_KEY_FILE: keyFile };
    expect(await errorAt(mutual.grpcAddress, env)).toMatch(expected);
  });

  it("if the files of the client certificate are not in PEM format", async () => {
    const { caFile } = files;
    const env = { LATCHKEY_CA_FILE: caFile, LATCHKEY_CERT_FILE: "package.json", LATCHKEY_KEY_FILE: "package.json" };
    expect(await errorAt(mutual.grpcAddress, env)).toMatch(/LATCHKEY_CERT_FILE and LATCHKEY_KEY_FILE must be/);
  });

  it("if the address is that of the HTTP port, with and without TLS", async () => {
    const expected = /does not speak gRPC .*HTTP port.*50051/;
    expect(await errorAt(new URL(plain.httpUrl).host)).toMatch(expected);
    expect(await errorAt(new URL(secured.httpUrl).host, { LATCHKEY_CA_FILE: files.caFile })).toMatch(expected);
  });

  it("if another server with HTTP/2 listens there", async () => {
    const server = createHttp2Server((_request, response) => response.end());
    expect(await errorAt(await listen(server))).toMatch(/does not speak gRPC/);
  });

  it("if the server closes every connection", async () => {
    const address = await listen(createServer((socket) => socket.destroy()));
    expect(await errorAt(address)).toMatch(/closed the connection/);
    expect(await errorAt(`https://${address}`)).toMatch(/closed the connection.*gRPC port/);
  });

  it("if the server accepts connections and does not respond", async () => {
    const address = await listen(createServer(() => {}));
    expect(await errorAt(address)).toMatch(/did not respond in time/);
  });
});

it("an error of the service is printed as the service describes it", async () => {
  const env = { LATCHKEY_ADDRESS: plain.grpcAddress, LATCHKEY_CREDENTIAL: "lk_unknown" };
  const { exitCode, stderr } = await latchkey(["workspace", "list"], env);
  expect(exitCode).toBe(3);
  expect(stderr).toMatch(/^error: .*\(authentication\/malformed, req_\w+\)$/m);
});
