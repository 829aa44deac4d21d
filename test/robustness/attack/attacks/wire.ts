import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { generate } from "selfsigned";
import { type Attack, outcomeOf } from "../attack.js";
import { establishedOn } from "../listening.js";
import { jsonHeaders, openSocket, postText, readUntilQuiet, requestText, statusOf } from "../sockets.js";

export const oddRequests: Attack = {
  name: "odd-requests",
  title: "a request that proxies read differently is served",
  async run(site) {
    const target = await site.start();
    const { key } = await target.createTenant();
    const head = `authorization: Bearer ${key}\r\ncontent-type: application/json\r\n`;
    const path = "/v2/keys.listKeys";
    const requests = {
      "a percent-encoded path": postText("/v2/keys%2elistKeys", key, "{}"),
      "a percent-encoded RPC": postText("/latchkey.v1.KeysService/List%4beys", key, "{}"),
      "two Host headers": `POST ${path} HTTP/1.1\r\nhost: a\r\nhost: b\r\n${head}content-length: 2\r\n\r\n{}`,
      "Transfer-Encoding gzip, chunked": `POST ${path} HTTP/1.1\r\nhost: a\r\n${head}transfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
      "Transfer-Encoding identity, chunked": `POST ${path} HTTP/1.1\r\nhost: a\r\n${head}transfer-encoding: identity, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
      "HTTP/0.9": "GET /livez\r\n\r\n",
      "HTTP/2.0 in a request line": `GET /livez HTTP/2.0\r\nhost: a\r\n\r\n`,
    };
    const served: string[] = [];
    for (const [name, request] of Object.entries(requests)) {
      const socket = await openSocket(target.httpPort);
      socket.write(request);
      const text = await readUntilQuiet(socket, 1_000);
      if (statusOf(text) === 200) served.push(name);
    }
    return outcomeOf(
      { refused: served.length === 0 },
      served.length === 0 ? "all refused" : `served: ${served.join(", ")}`,
    );
  },
};

export const cachedSecrets: Attack = {
  name: "cached-secrets",
  title: "a cache on the way may keep a response with a secret",
  async run(site) {
    const target = await site.start();
    const { key } = await target.createTenant();
    const lacking: string[] = [];
    for (const path of ["/v2/keys.createKey", "/latchkey.v1.KeysService/CreateKey"]) {
      const { headers } = await fetch(target.httpUrl + path, { method: "POST", headers: jsonHeaders(key), body: "{}" });
      if (!headers.get("cache-control")?.includes("no-store")) lacking.push(`${path}: no Cache-Control: no-store`);
      if (headers.get("x-content-type-options") !== "nosniff") lacking.push(`${path}: no nosniff`);
    }
    return outcomeOf(
      { protected: lacking.length === 0 },
      lacking.join(", ") || "no-store and nosniff on both protocols",
    );
  },
};

export const unloggedCalls: Attack = {
  name: "unlogged-calls",
  title: "a call takes effect without a line in the log",
  async run(site) {
    const target = await site.start();
    const { key, workspaceId } = await target.createTenant();
    const attempts = 20;
    const before = createLines(target.log());
    for (let attempt = 0; attempt < attempts; attempt++) {
      const socket = await openSocket(target.httpPort);
      const slow = postText("/v2/keys.deleteKey", key, JSON.stringify({ keyId: "key_01jd9wzr3xfg2tq5d0v8m1c7ha" }));
      socket.resume().write(slow + postText("/latchkey.v1.KeysService/CreateKey", key, '{"name":"unseen"}'));
      await sleep(60);
      socket.resetAndDestroy();
    }
    await sleep(2_000);
    const [row] = await target.sql()`
      select count(*)::int as made from keys where workspace_id = ${workspaceId} and name = 'unseen'`;
    const logged = createLines(target.log()) - before;
    return outcomeOf({ logged: logged >= row?.["made"] }, `${row?.["made"]} keys made, ${logged} lines in the log`);
  },
};

function createLines(log: string): number {
  return log.split("\n").filter((line) => line.includes("KeysService/CreateKey")).length;
}

export const weakCiphers: Attack = {
  name: "weak-ciphers",
  title: "a client gets a TLS connection without forward secrecy or with CBC",
  async run(site) {
    const { private: key, cert } = await generate([{ name: "commonName", value: "localhost" }], { keySize: 2048 });
    const [keyFile, certFile] = [join(site.folder, "tls.key"), join(site.folder, "tls.crt")];
    writeFileSync(keyFile, key, { mode: 0o600 });
    writeFileSync(certFile, cert);
    const target = await site.start({ env: { TLS_KEY_FILE: keyFile, TLS_CERT_FILE: certFile } });
    const weak = ["AES128-SHA", "AES256-SHA", "AES128-GCM-SHA256", "ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES256-SHA384"];
    const agreed: string[] = [];
    for (const port of [target.httpPort, target.grpcPort]) {
      for (const cipher of weak)
        if (await connects(port, cipher)) agreed.push(`${cipher} on ${port === target.httpPort ? "HTTP" : "gRPC"}`);
    }
    const strong = await Promise.all(
      [target.httpPort, target.grpcPort].map((port) => connects(port, "ECDHE-RSA-AES128-GCM-SHA256")),
    );
    return outcomeOf(
      { refused: agreed.length === 0, "open to strong ciphers": strong.every(Boolean) },
      agreed.length === 0 ? `${weak.length} weak ciphers refused on both ports` : `agreed to ${agreed.join(", ")}`,
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
  title: "a client keeps responses open for as long as it reads a byte now and then",
  async run(site) {
    const target = await site.start();
    // No more than the memory budget has for strangers: further ones would be refused, in a few bytes.
    const sockets = await Promise.all(Array.from({ length: 6 }, () => openSocket(target.httpPort)));
    site.afterwards(() => sockets.forEach((socket) => void socket.destroy()));
    // More than the buffers of the system hold.
    const request = requestText("GET", "/docs/swagger-ui.js", {});
    for (const socket of sockets) socket.pause().write(request.repeat(8));
    await sleep(1_000);
    const begun = establishedOn(target.httpPort);
    const startedAt = performance.now();
    // Half as long again as the service gives a client for a response.
    while (establishedOn(target.httpPort) > 0 && performance.now() - startedAt < 45_000) {
      await sleep(1_000);
      // Enough for the kernel to take more of the response.
      for (const socket of sockets) socket.read(Math.min(socket.readableLength, 16 * 1024));
    }
    const left = establishedOn(target.httpPort);
    return outcomeOf(
      { closed: left === 0 },
      `${begun} connections; ${left} open after ${((performance.now() - startedAt) / 1_000).toFixed(0)} s`,
    );
  },
};
