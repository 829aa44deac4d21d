import { once } from "node:events";
import { connect } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { createAuthority, writeFiles } from "../../support/certificate-authority.js";
import { callers } from "../../support/clients/tls.js";
import { openTestApp } from "../../support/harness.js";
import { readSamples, total } from "../../support/metric-samples.js";

it("over TLS, connections beyond MAX_CONNECTIONS are closed at once, silent ones after a timeout", async () => {
  const authority = await createAuthority();
  const files = writeFiles(await authority.issue(), authority.cert);
  const { certFile, keyFile } = files;
  const limits = { handshakeTimeoutMs: 1_000 };
  const tls = { certFile, keyFile, clientCaFile: undefined };
  const app = await openTestApp({ tls, maxConnections: 10, limits, metricsPort: 0 });
  onTestFinished(async () => {
    await app.close();
    await files.remove();
  });
  const all = callers(app, { ca: authority.cert });
  const countRefused = async () => total(await readSamples(app), "latchkey_shed_total", { bottleneck: "connections" });
  for (const [url, protocol] of [
    [app.httpUrl, "http"],
    [`https://${app.grpcAddress}`, "grpc, by grpc-js"],
  ] as const) {
    const { hostname, port } = new URL(url);
    const before = await countRefused();
    const silent = Array.from({ length: 15 }, () =>
      connect(Number(port), hostname)
        .on("error", () => {})
        .resume(),
    );
    // Five are closed at once, the others after the handshake timeout. Only the metric distinguishes them.
    await Promise.all(silent.map((socket) => socket.closed || once(socket, "close")));
    expect(await countRefused()).toBe(before + 5);
    expect(await all[protocol]()).toBe(0);
  }
});
