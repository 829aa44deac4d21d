import { once } from "node:events";
import { connect } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { openTestApp } from "../harness.js";
import { createAuthority, writeFiles } from "../tls/authority.js";
import { callers } from "../tls/callers.js";

it("over TLS, connections beyond MAX_CONNECTIONS are closed, and who has one is served", async () => {
  const authority = await createAuthority();
  const files = writeFiles(await authority.issue(), authority.cert);
  const { certFile, keyFile } = files;
  const limits = { handshakeMs: 1_000 };
  const app = await openTestApp({ tls: { certFile, keyFile, clientCaFile: undefined }, maxConnections: 10, limits });
  onTestFinished(async () => {
    await app.close();
    await files.remove();
  });
  const all = callers(app, { ca: authority.cert });
  for (const [url, door] of [
    [app.httpUrl, "http"],
    [`https://${app.grpcAddress}`, "grpc, by grpc-js"],
  ] as const) {
    const { hostname, port } = new URL(url);
    const silent = Array.from({ length: 15 }, () =>
      connect(Number(port), hostname)
        .on("error", () => {})
        .resume(),
    );
    // Five at once, the others when they have not agreed on the encryption in time.
    await Promise.all(silent.map((socket) => socket.closed || once(socket, "close")));
    expect(await all[door]()).toBe(0);
  }
});
