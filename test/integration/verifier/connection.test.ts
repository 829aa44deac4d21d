import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http2";
import { type AddressInfo, createServer as createTcpServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect, promisify } from "node:util";
import { Code } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { VerifierService } from "../../../gen/latchkey/v1/verifier_service_pb.js";
import { openVerifier, type Verifier } from "../../../src/verifier/verifier.js";
import { type Authority, createAuthority, writeFiles } from "../../support/certificate-authority.js";
import { readLookups } from "../../support/metrics.js";
import { openProxy } from "../../support/proxy.js";
import { openScene, openTestVerifier, type Scene, verifyLocally } from "../../support/verifier-scene.js";

const run = promisify(execFile);

/** The built library, for programs in processes of their own. */
const library = join(process.cwd(), "dist/src/verifier/verifier.js");

let scene: Scene;
let key: string;
beforeAll(async () => {
  scene = await openScene();
  ({ key } = await scene.createKey());
});
afterAll(() => scene.close());

/** A verifier behind a proxy that simulates faults of the network. */
async function openBehindFaults() {
  const proxy = await openProxy(`http://${scene.app.grpcAddress}`);
  onTestFinished(() => proxy.close());
  const reasons: unknown[] = [];
  const verifier = await openTestVerifier(scene, {
    address: proxy.url,
    timeoutMs: 2_000,
    onDisconnect: (reason) => reasons.push(reason),
  });
  await verifyLocally(verifier, key);
  return { proxy, verifier, reasons };
}

/** How many valid verifications of a key the service has counted. */
async function countOf(keyId: string): Promise<number> {
  const rows = await scene.sql`
    select sum(valid)::int as count from verification_counts where resource_id = ${keyId} group by resource_id`;
  return rows[0]?.["count"] ?? 0;
}

async function listen(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

const outcomeOf = (verifier: Verifier) =>
  Promise.resolve(verifier.verify(key)).then(
    ({ code }) => code,
    () => "rejected",
  );

describe("without a connection", () => {
  it("no key is accepted beyond the grant, whether the network resets or swallows packets", async () => {
    for (const fault of ["cut", "blackhole"] as const) {
      const { proxy, verifier } = await openBehindFaults();
      if (fault === "blackhole") proxy.stall();
      else proxy.cut();
      await sleep(600); // the lease time and more
      expect(verifier.stats.isGranted).toBe(false);
      expect(await outcomeOf(verifier)).toBe("rejected");
      proxy.resume();
      await vi.waitFor(async () => expect(await outcomeOf(verifier)).toBe("VALID"), { timeout: 15_000 });
      expect(await verifyLocally(verifier, key)).toMatchObject({ code: "VALID" });
    }
  });

  it("a change that it misses is obeyed after it has reconnected", async () => {
    const { proxy, verifier } = await openBehindFaults();
    const changed = await scene.createKey();
    await verifyLocally(verifier, changed.key);
    proxy.cut();
    await scene.call("keys.updateKey", { keyId: changed.keyId, enabled: false });
    const result = Promise.resolve(verifier.verify(changed.key)).catch(() => ({ code: "rejected" }));
    expect((await result).code).not.toBe("VALID");
    proxy.resume();
    await vi.waitFor(async () => expect(await outcomeOf(verifier)).toBe("VALID"), { timeout: 15_000 });
    expect(await verifyLocally(verifier, changed.key)).toMatchObject({ valid: false, code: "DISABLED" });
  });

  it("each end of a stream is reported with its reason, and a callback that throws ends nothing", async () => {
    const thrown: unknown[] = [];
    const onUncaught = (error: unknown) => void thrown.push(error);
    const others = process.listeners("uncaughtException");
    process.removeAllListeners("uncaughtException").on("uncaughtException", onUncaught);
    onTestFinished(() => {
      process.off("uncaughtException", onUncaught);
      for (const listener of others) process.on("uncaughtException", listener);
    });
    const proxy = await openProxy(`http://${scene.app.grpcAddress}`);
    onTestFinished(() => proxy.close());
    const verifier = await openTestVerifier(scene, {
      address: proxy.url,
      onDisconnect() {
        throw new Error("from the callback");
      },
    });
    proxy.cut();
    await expect.poll(() => thrown.map(String)).toContain("Error: from the callback");
    proxy.resume();
    expect(await verifyLocally(verifier, key)).toMatchObject({ code: "VALID" });
  });
});

describe("verifications that a stream has not reported when it ends are counted once", () => {
  /** Verifies a new key locally, ends the stream before the next report, and waits until all verifications are counted. */
  async function expectCounted(verifier: Verifier, endStream: () => unknown): Promise<void> {
    const created = await scene.createKey();
    await verifyLocally(verifier, created.key);
    for (let call = 0; call < 10; call++) expect((await verifier.verify(created.key)).code).toBe("VALID");
    const { local, remote } = verifier.stats;
    expect(local).toBeGreaterThanOrEqual(10);
    await endStream();
    await expect.poll(() => countOf(created.keyId), { timeout: 20_000 }).toBe(local + remote);
  }

  it("if its replica shuts down", async () => {
    const second = await scene.open();
    const address = [second, scene.app].map(({ grpcAddress }) => `http://${grpcAddress}`);
    await expectCounted(await openTestVerifier(scene, { address }), () => second.close());
  });

  it("if the network is cut for a longer time than that of a report", async () => {
    const proxy = await openProxy(`http://${scene.app.grpcAddress}`);
    onTestFinished(() => proxy.close());
    await expectCounted(await openTestVerifier(scene, { address: proxy.url }), async () => {
      proxy.stall();
      await sleep(3_000);
      proxy.cut();
      await sleep(1_000);
      proxy.resume();
    });
  });
});

it("a replica that answers no pings is left after three seconds, also if its lease is long", async () => {
  let grants = 0;
  const server = createServer(
    connectNodeAdapter({
      routes: (router) =>
        router.service(VerifierService, {
          async *delegate(requests) {
            for await (const { message } of requests) {
              if (message.case !== "ping" || grants++ > 0) continue;
              yield { message: { case: "grant", value: { ping: message.value.number, remainingMs: 5_000 } } };
            }
          },
        }),
    }),
  );
  onTestFinished(() => void server.close());
  let leftAt: number | undefined;
  const verifier = await openTestVerifier(scene, {
    address: `http://127.0.0.1:${await listen(server)}`,
    onDisconnect() {
      leftAt ??= performance.now();
    },
  });
  const openedAt = performance.now();
  const inUse = setInterval(() => void outcomeOf(verifier), 1_000);
  onTestFinished(() => clearInterval(inUse));
  await expect.poll(() => leftAt, { timeout: 20_000 }).toBeDefined();
  const leftAfterMs = Number(leftAt) - openedAt;
  expect(leftAfterMs).toBeGreaterThan(2_900);
  expect(leftAfterMs).toBeLessThan(6_000);
});

describe("with a slow network", () => {
  it("keys are verified locally and the stream stays open, although pings overlap", async () => {
    const { proxy, verifier, reasons } = await openBehindFaults();
    proxy.delayResponses(220); // longer than the interval of pings, shorter than a grant
    const until = performance.now() + 5_000;
    while (performance.now() < until) {
      await outcomeOf(verifier);
      await sleep(20);
    }
    expect(reasons).toEqual([]);
    await verifyLocally(verifier, key);
  });

  it("a grant that arrives after its time gives no right: each verification asks the service", async () => {
    const { proxy, verifier } = await openBehindFaults();
    proxy.delayResponses(700);
    await sleep(1_500);
    const { local, remote } = verifier.stats;
    for (let call = 0; call < 3; call++) expect(await outcomeOf(verifier)).toBe("VALID");
    expect(verifier.stats).toMatchObject({ local, remote: remote + 3 });
  });
});

it("a client whose event loop was blocked for longer than its grant asks the service, and keeps its stream", async () => {
  const reasons: unknown[] = [];
  const verifier = await openTestVerifier(scene, { onDisconnect: (reason) => reasons.push(reason) });
  await verifyLocally(verifier, key);
  for (const until = performance.now() + 4_000; performance.now() < until; );
  expect(verifier.verify(key)).toBeInstanceOf(Promise);
  expect(await verifyLocally(verifier, key)).toMatchObject({ code: "VALID" });
  expect(reasons).toEqual([]);
});

describe("with several replicas", () => {
  it("a shutdown moves verifiers to another replica, and no verification fails", async () => {
    const second = await scene.open();
    const address = [second, scene.app].map(({ grpcAddress }) => `http://${grpcAddress}`);
    const reasons: unknown[] = [];
    const verifier = await openTestVerifier(scene, { address, onDisconnect: (reason) => reasons.push(reason) });
    await verifyLocally(verifier, key);
    let verified = 0;
    let isClosed = false;
    const closing = second.close().then(() => {
      isClosed = true;
    });
    while (!isClosed || reasons.length === 0) {
      expect(await outcomeOf(verifier)).toBe("VALID");
      verified += 1;
      await new Promise(setImmediate);
    }
    await closing;
    expect(verified).toBeGreaterThan(0);
    expect(reasons[0]).toMatchObject({ status: Code.Unavailable, message: expect.stringContaining("shutting down") });
    expect(await verifyLocally(verifier, key)).toMatchObject({ code: "VALID" });
  });

  it("a replica that restarts on the same port is used again", async () => {
    const first = await scene.open();
    const grpcPort = Number(first.grpcAddress.split(":")[1]);
    const verifier = await openTestVerifier(scene, { address: `http://${first.grpcAddress}` });
    await verifyLocally(verifier, key);
    await first.close();
    expect(await outcomeOf(verifier)).toBe("rejected");
    await scene.open({ grpcPort });
    await vi.waitFor(async () => expect(await outcomeOf(verifier)).toBe("VALID"), { timeout: 15_000 });
    expect(await verifyLocally(verifier, key)).toMatchObject({ code: "VALID" });
  });
});

describe("openVerifier rejects", () => {
  const open = (options: object) =>
    openVerifier({
      address: `http://${scene.app.grpcAddress}`,
      key: scene.caller.key,
      openTimeoutMs: 1_000,
      ...options,
    });

  it("at once if the service refuses the key", async () => {
    const { key } = await scene.createKey({ scopes: ["keys.read"] });
    const slow = { openTimeoutMs: 60_000 };
    await expect(open({ ...slow, key })).rejects.toMatchObject({ code: "insufficient_permissions" });
    await expect(open({ ...slow, key: "lk_wrong" })).rejects.toMatchObject({ code: "malformed" });
  });

  it("at once if an address is not one of an HTTP server, also one that would be used later", async () => {
    const good = `http://${scene.app.grpcAddress}`;
    for (const bad of [
      scene.app.grpcAddress,
      "127.0.0.1:50051",
      "localhost:50051",
      "keys.example.com",
      "ftp://a",
      "",
    ]) {
      for (const address of [bad, [good, bad]]) {
        await expect(open({ address }), `${address}`).rejects.toThrow("The address must be an HTTP address, such as");
      }
    }
  });

  it("at once if its key cannot be sent, without the key in the error", async () => {
    const reasons: unknown[] = [];
    const key = `${scene.caller.key}\nlk_second`;
    const error = await open({ key, onDisconnect: (reason: unknown) => reasons.push(reason) }).catch((error) => error);
    expect(error).toMatchObject({ name: "TypeError", message: expect.stringMatching(/^The key must be printable/) });
    expect(inspect([error, reasons], { depth: 10 })).not.toContain(scene.caller.key);
  });

  it("after its timeout if no service answers, with the reason", async () => {
    const server = createTcpServer();
    const port = await listen(server);
    await expect(open({ address: `http://127.0.0.1:${port}` })).rejects.toMatchObject({ code: Code.Unavailable });
    server.close();
    const gone = open({ address: `http://127.0.0.1:${port}` });
    await expect(gone).rejects.toMatchObject({ code: Code.Unavailable, cause: { code: Code.Unavailable } });
  });

  it("if another program answers with garbage", async () => {
    const server = createServer((_request, response) => {
      response.writeHead(200, { "content-type": "application/grpc+proto" });
      response.end(Buffer.alloc(1_000, 0xff));
    });
    onTestFinished(() => void server.close());
    const port = await listen(server);
    await expect(open({ address: `http://127.0.0.1:${port}` })).rejects.toBeInstanceOf(Error);
  });
});

it("concurrent verifications of a key share one request, and one lookup", async () => {
  const verifier = await openTestVerifier(scene);
  await verifyLocally(verifier, key);
  const created = await scene.createKey();
  const before = await readLookups(scene.app, "key");
  const results = await Promise.all(Array.from({ length: 200 }, () => verifier.verify(created.key)));
  expect(new Set(results.map(({ code }) => code))).toEqual(new Set(["VALID"]));
  const { postgres = 0 } = await readLookups(scene.app, "key");
  expect(postgres - (before["postgres"] ?? 0)).toBeLessThanOrEqual(2);
});

it("cached keys take a bounded memory", async () => {
  const verifier = await openTestVerifier(scene, { maxBytes: 20_000 });
  const keys = await Promise.all(Array.from({ length: 40 }, () => scene.createKey()));
  for (const { key } of keys) expect((await verifier.verify(key)).code).toBe("VALID");
  expect(verifier.stats.cachedKeys).toBeGreaterThan(0);
  expect(verifier.stats.cachedKeys).toBeLessThan(20);
});

it("each local verification of many keys is counted once by the service, although their report has several parts", async () => {
  const verifier = await openTestVerifier(scene);
  const keys = await Promise.all(Array.from({ length: 250 }, () => scene.createKey()));
  for (let round = 0; round < 3; round++) for (const created of keys) await verifier.verify(created.key);
  const { local, remote } = verifier.stats;
  expect(local + remote).toBe(750);
  expect(local).toBeGreaterThan(200);
  const ids = keys.map(({ keyId }) => keyId);
  const counted = async () => {
    const rows = await scene.sql`
      select sum(valid)::int as count from verification_counts where resource_id = any(${ids}) group by resource_id`;
    return rows.map(({ count }) => count);
  };
  await expect.poll(counted, { timeout: 20_000 }).toEqual(ids.map(() => 3));
});

it("a secret stays in memory only for seconds after it was verified, and the header around it not at all", {
  timeout: 120_000,
}, async () => {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-heap-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const files = ["after-use", "later"].map((name) => join(folder, name));
  const script = `
    import { setTimeout as sleep } from "node:timers/promises";
    import { writeHeapSnapshot } from "node:v8";
    import { openVerifier } from ${JSON.stringify(library)};
    const verifier = await openVerifier({ address: process.env.ADDRESS, key: process.env.KEY });
    const secret = { begin: "Bearer ".length, end: "Bearer ".length + ${key.length} };
    for (let call = 0; call < 10 || verifier.stats.local === 0; call++) {
      const header = Buffer.concat([Buffer.from("Bearer "), Buffer.from(process.env.SECRET, "base64"), Buffer.alloc(900, "pad")]);
      await verifier.verify(header.toString().slice(secret.begin, secret.end));
    }
    /./.exec("V8 keeps the last text that matched a regular expression");
    writeHeapSnapshot(process.env.FIRST);
    await sleep(6_000);
    writeHeapSnapshot(process.env.SECOND);
    process.stdout.write(JSON.stringify(verifier.stats));
    await verifier.close();`;
  const env = {
    ...process.env,
    ADDRESS: `http://${scene.app.grpcAddress}`,
    KEY: scene.caller.key,
    SECRET: Buffer.from(key).toString("base64"),
    FIRST: files[0],
    SECOND: files[1],
  };
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", script], { env, timeout: 100_000 });
  expect(JSON.parse(stdout)).toMatchObject({ cachedKeys: 1 });
  const [afterUse, later] = files.map((file) => readFileSync(file, "utf8")) as [string, string];
  expect([afterUse.includes(key), afterUse.includes(`${key}padpad`), later.includes(key)]).toEqual([
    true,
    false,
    false,
  ]);
});

describe("close()", () => {
  it("refuses later verifications, also of cached keys, and takes the stream with it", async () => {
    const verifier = await openTestVerifier(scene);
    await verifyLocally(verifier, key);
    const closing = verifier.close();
    await expect(Promise.resolve(verifier.verify(key))).rejects.toMatchObject({ code: Code.Canceled });
    await closing;
    await verifier.close();
    expect(verifier.stats).toMatchObject({ isGranted: false, cachedKeys: 0 });
  });

  it("leaves nothing open: the process exits by itself, also while the service is gone", async () => {
    const server = createTcpServer((socket) => socket.destroy());
    onTestFinished(() => void server.close());
    const port = await listen(server);
    const script = `
      import { openVerifier } from ${JSON.stringify(library)};
      const options = { key: process.env.KEY, openTimeoutMs: 30_000 };
      const verifier = await openVerifier({ ...options, address: process.env.ADDRESS });
      const { code } = await verifier.verify(process.env.SECRET);
      await verifier.close();
      const gone = await openVerifier({ ...options, address: process.env.GONE, openTimeoutMs: 300 }).catch(() => "gone");
      const kinds = process.getActiveResourcesInfo().filter((kind) => !/Pipe|TTY|File/.test(kind));
      process.stdout.write(JSON.stringify({ code, gone, kinds }));`;
    const env = {
      ...process.env,
      KEY: scene.caller.key,
      SECRET: key,
      ADDRESS: `http://${scene.app.grpcAddress}`,
      GONE: `http://127.0.0.1:${port}`,
    };
    const { stdout } = await run(process.execPath, ["--input-type=module", "-e", script], { env, timeout: 25_000 });
    const { kinds, ...rest } = JSON.parse(stdout);
    expect(rest).toEqual({ code: "VALID", gone: "gone" });
    expect(kinds.filter((kind: string) => kind !== "Timeout" && kind !== "Immediate")).toEqual([]);
  });
});

describe("TLS", () => {
  let authority: Authority;
  beforeAll(async () => {
    authority = await createAuthority();
  });

  it.each([false, true])("is used for the stream and for VerifyKey (mutual: %s)", async (mutual) => {
    const files = writeFiles(await authority.issue(), authority.cert);
    onTestFinished(() => files.remove());
    const { certFile, keyFile, caFile } = files;
    const secured = await scene.open({ tls: { certFile, keyFile, clientCaFile: mutual ? caFile : undefined } });
    const client = await authority.issue();
    const address = `https://${secured.grpcAddress}`;
    const open = (tls: object) => openVerifier({ address, key: scene.caller.key, openTimeoutMs: 3_000, tls });
    const verifier = await open({ ca: authority.cert, ...(mutual && client) });
    onTestFinished(() => verifier.close());
    expect(await verifyLocally(verifier, key)).toMatchObject({ code: "VALID" });
    await expect(verifier.verify(key, { permissions: "a AND" })).rejects.toMatchObject({ code: "invalid_input" });
    await expect(open(mutual ? { ca: authority.cert } : {})).rejects.toMatchObject({ code: Code.Unavailable });
  });
});
