import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { generate } from "selfsigned";
import {
  connectSocket,
  jsonHeaders,
  postText,
  readUntilQuiet,
  requestText,
  statusOf,
} from "../../../support/clients/sockets.js";
import { type Attack, outcomeOf } from "../attack.js";
import { establishedOn } from "../listening.js";

export const oddRequests: Attack = {
  name: "odd-requests",
  title: "the service accepts a request that proxies parse differently",
  async run(context) {
    const target = await context.start();
    const { key } = await target.createTenant();
    const headers = `authorization: Bearer ${key}\r\ncontent-type: application/json\r\n`;
    const path = "/v2/keys.listKeys";
    const encoded = (encoding: string) =>
      `POST ${path} HTTP/1.1\r\nhost: a\r\n${headers}transfer-encoding: ${encoding}\r\n\r\n2\r\n{}\r\n0\r\n\r\n`;
    const requests = {
      "a percent-encoded path": postText("/v2/keys%2elistKeys", key, "{}"),
      "a percent-encoded RPC": postText("/latchkey.v1.KeysService/List%4beys", key, "{}"),
      "two Host headers": `POST ${path} HTTP/1.1\r\nhost: a\r\nhost: b\r\n${headers}content-length: 2\r\n\r\n{}`,
      "Transfer-Encoding gzip, chunked": encoded("gzip, chunked"),
      "Transfer-Encoding identity, chunked": encoded("identity, chunked"),
      "HTTP/0.9": "GET /livez\r\n\r\n",
      "HTTP/2.0 in a request line": `GET /livez HTTP/2.0\r\nhost: a\r\n\r\n`,
    };
    const served: string[] = [];
    for (const [name, request] of Object.entries(requests)) {
      const socket = await connectSocket(target.httpUrl);
      socket.write(request);
      const text = await readUntilQuiet(socket, 1_000);
      if (statusOf(text) === 200) served.push(name);
    }
    return outcomeOf(
      { "all refused": served.length === 0 },
      served.length === 0 ? "all refused" : `served: ${served.join(", ")}`,
    );
  },
};

export const cachedSecrets: Attack = {
  name: "cached-secrets",
  title: "an intermediate cache may store a response with a secret",
  async run(context) {
    const target = await context.start();
    const { key } = await target.createTenant();
    const missing: string[] = [];
    for (const path of ["/v2/keys.createKey", "/latchkey.v1.KeysService/CreateKey"]) {
      const { headers } = await fetch(target.httpUrl + path, { method: "POST", headers: jsonHeaders(key), body: "{}" });
      if (!headers.get("cache-control")?.includes("no-store")) missing.push(`${path}: no Cache-Control: no-store`);
      if (headers.get("x-content-type-options") !== "nosniff") missing.push(`${path}: no nosniff`);
    }
    return outcomeOf(
      { "headers present": missing.length === 0 },
      missing.join(", ") || "no-store and nosniff on both protocols",
    );
  },
};

export const unloggedCalls: Attack = {
  name: "unlogged-calls",
  title: "a call takes effect without a log line",
  async run(context) {
    const target = await context.start();
    const { key, workspaceId } = await target.createTenant();
    const attempts = 20;
    const before = createLines(target.log());
    for (let attempt = 0; attempt < attempts; attempt++) {
      const socket = await connectSocket(target.httpUrl);
      const slow = postText("/v2/keys.deleteKey", key, JSON.stringify({ keyId: "key_01jd9wzr3xfg2tq5d0v8m1c7ha" }));
      socket.resume().write(slow + postText("/latchkey.v1.KeysService/CreateKey", key, '{"name":"unseen"}'));
      await sleep(60);
      socket.resetAndDestroy();
    }
    await sleep(2_000);
    const [row] = await target.sql()`
      select count(*)::int as created from keys where workspace_id = ${workspaceId} and name = 'unseen'`;
    const logged = createLines(target.log()) - before;
    return outcomeOf(
      { "every change logged": logged >= row?.["created"] },
      `${row?.["created"]} keys created, ${logged} log lines`,
    );
  },
};

function createLines(log: string): number {
  return log.split("\n").filter((line) => line.includes("KeysService/CreateKey")).length;
}

export const weakCiphers: Attack = {
  name: "weak-ciphers",
  title: "a client negotiates a TLS cipher without forward secrecy or with CBC",
  async run(context) {
    const { private: key, cert } = await generate([{ name: "commonName", value: "localhost" }], { keySize: 2048 });
    const [keyFile, certFile] = [join(context.folder, "tls.key"), join(context.folder, "tls.crt")];
    writeFileSync(keyFile, key, { mode: 0o600 });
    writeFileSync(certFile, cert);
    const target = await context.start({ env: { TLS_KEY_FILE: keyFile, TLS_CERT_FILE: certFile } });
    const weak = ["AES128-SHA", "AES256-SHA", "AES128-GCM-SHA256", "ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES256-SHA384"];
    const accepted: string[] = [];
    for (const port of [target.httpPort, target.grpcPort]) {
      for (const cipher of weak)
        if (await connects(port, cipher)) accepted.push(`${cipher} on ${port === target.httpPort ? "HTTP" : "gRPC"}`);
    }
    const strong = await Promise.all(
      [target.httpPort, target.grpcPort].map((port) => connects(port, "ECDHE-RSA-AES128-GCM-SHA256")),
    );
    return outcomeOf(
      { "weak ciphers refused": accepted.length === 0, "strong ciphers accepted": strong.every(Boolean) },
      accepted.length === 0 ? `${weak.length} weak ciphers refused on both ports` : `accepted: ${accepted.join(", ")}`,
    );
  },
};

function connects(port: number, ciphers: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connectTls({
      port,
      host: "127.0.0.1",
      ciphers: `${ciphers}:@SECLEVEL=0`,
      minVersion: "TLSv1.2",
      maxVersion: "TLSv1.2",
      rejectUnauthorized: false,
      ALPNProtocols: ["h2", "http/1.1"],
    });
    socket.once("secureConnect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
    socket.once("close", () => resolve(false));
  });
}

export const slowReading: Attack = {
  name: "slow-reading",
  title: "a slow reader keeps responses open by reading a few bytes now and then",
  async run(context) {
    const target = await context.start();
    // As many as the memory budget allows without a credential. Further responses would be refused with a few bytes.
    const sockets = await Promise.all(Array.from({ length: 6 }, () => connectSocket(target.httpUrl)));
    context.addCleanup(() => sockets.forEach((socket) => void socket.destroy()));
    // More than the socket buffers of the system can hold.
    const request = requestText("GET", "/docs/swagger-ui.js", {});
    for (const socket of sockets) socket.pause().write(request.repeat(8));
    await sleep(1_000);
    const opened = establishedOn(target.httpPort);
    const startedAt = performance.now();
    // 1.5 times the time that the service allows a client to read a response.
    while (establishedOn(target.httpPort) > 0 && performance.now() - startedAt < 45_000) {
      await sleep(1_000);
      // Enough that the kernel accepts more of the response.
      for (const socket of sockets) socket.read(Math.min(socket.readableLength, 16 * 1024));
    }
    const left = establishedOn(target.httpPort);
    return outcomeOf(
      { "all connections closed": left === 0 },
      `${opened} connections; ${left} open after ${((performance.now() - startedAt) / 1_000).toFixed(0)} s`,
    );
  },
};
