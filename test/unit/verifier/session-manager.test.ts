import { once } from "node:events";
import { type ClientHttp2Session, createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { SessionManager } from "../../../src/verifier/session-manager.js";

/** A server that ends each stream, and then asks its client to close the connection, as in a graceful shutdown. */
async function openServer(): Promise<string> {
  const server = createServer();
  server.on("stream", (stream) => {
    const { session } = stream;
    stream.respond({ ":status": 200 }, { endStream: true });
    stream.once("close", () => session?.goaway());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Makes a call. When the client destroys its connection because of the shutdown, and has not reported it yet, proceeds. */
async function callUntilDestroyed(manager: SessionManager, proceed: () => void): Promise<void> {
  const stream = await manager.request("GET", "/", {}, {});
  const session = stream.session as ClientHttp2Session;
  stream.resume();
  session.once("goaway", () => {
    if (session.destroyed) proceed();
  });
  // Not with `once` of node:events, which would listen for errors, too.
  await new Promise<void>((resolve) => session.once("close", resolve));
}

// Without a listener, Node throws the error, and the test run fails.
describe("the error of a connection that a shutdown has closed does not end the process", () => {
  it.each([
    ["the manager is aborted", (manager: SessionManager) => manager.abort()],
    ["another call is made", (manager: SessionManager) => void manager.connect()],
  ])("if %s before Node reports it", async (_name, proceed) => {
    const manager = new SessionManager(await openServer());
    onTestFinished(() => manager.abort());
    let proceeded = 0;
    await callUntilDestroyed(manager, () => {
      proceeded += 1;
      proceed(manager);
    });
    expect(proceeded).toBe(1);
  });
});
