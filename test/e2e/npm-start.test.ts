import { connect } from "node:net";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { copySources } from "./copies.js";
import { remainingProcesses, until } from "./processes.js";
import { call, makeSandbox, readSecret, start, waitForExit } from "./service.js";

describe("npm start", () => {
  test("builds and serves, with its data in .latchkey by default; Ctrl-C leaves no process behind and is not an error", async () => {
    const { sandbox, dataDir, service } = await npmStart();
    expect(service.stdout()).toContain(dataDir);
    const key = readSecret(join(dataDir, "first.key"));
    expect(await call(service, "/v1/keys.listKeys", key)).toMatchObject({ status: 200, data: [{ name: "first key" }] });
    const descendants = service.descendants();
    expect(descendants.length).toBeGreaterThan(4);

    service.signalGroup("SIGINT");
    const { stderr } = await waitForExit(service);
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
    expect(stderr).not.toMatch(/npm err/i);
  });

  test("graceful shutdown: Ctrl-C, which npm forwards a second time, lets a call in flight finish", async () => {
    const { dataDir, service } = await npmStart();
    const { port } = new URL(service.httpUrl);
    const client = connect(Number(port), "127.0.0.1");
    onTestFinished(() => void client.destroy());
    let received = "";
    client.on("data", (bytes) => {
      received += bytes;
    });
    const authorization = `Authorization: Bearer ${readSecret(join(dataDir, "first.key"))}`;
    const headers = [
      "POST /v1/keys.listKeys HTTP/1.1",
      "Host: localhost",
      authorization,
      "Content-Type: application/json",
    ];
    client.write([...headers, "Content-Length: 2", "Expect: 100-continue", "", ""].join("\r\n"));
    await until("the call is in flight", () => received.includes("100 Continue") || undefined);

    service.signalGroup("SIGINT");
    await until("new connections are refused", async () => {
      const refused = await fetch(`${service.httpUrl}/v2/liveness`).then(
        () => false,
        () => true,
      );
      return refused || undefined;
    });
    client.write("{}");
    await until("the call is answered", () => received.includes('"first key"') || undefined);
    await waitForExit(service);
  });

  test("SIGTERM to npm, as process managers send it, stops the service, too, and leaves no process behind", async () => {
    const { sandbox, service } = await npmStart();
    const descendants = service.descendants();

    service.signal("SIGTERM");
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
  });
});

/** In a private copy, because `npm start` builds, and other tests run from the build of the checkout. */
async function npmStart() {
  const sandbox = makeSandbox();
  const cwd = join(sandbox.folder, "checkout");
  copySources(cwd);
  const service = await start(sandbox, { command: ["npm", "start"], cwd, set: { DATA_DIR: undefined } });
  return { sandbox, dataDir: join(cwd, ".latchkey"), service };
}
