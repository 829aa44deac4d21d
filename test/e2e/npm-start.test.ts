import { connect } from "node:net";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { copySources } from "./copies.js";
import { leftOf, until } from "./processes.js";
import { call, ending, makePlace, readSecret, start } from "./service.js";

describe("npm start", () => {
  test("builds and serves, with its data in .latchkey by default; Ctrl-C leaves nothing behind and is no fault", async () => {
    const { place, dataDir, service } = await npmStart();
    expect(service.stdout()).toContain(dataDir);
    const key = readSecret(join(dataDir, "first.key"));
    expect(await call(service, "/v1/keys.listKeys", key)).toMatchObject({ status: 200, data: [{ name: "first key" }] });
    const family = service.family();
    expect(family.length).toBeGreaterThan(4);

    service.signalGroup("SIGINT");
    const { stderr } = await ending(service);
    expect(await leftOf(family, place.folder)).toEqual([]);
    expect(stderr).not.toMatch(/npm err/i);
  });

  test("Ctrl-C, which npm passes on a second time, lets a call that is under way finish", async () => {
    const { dataDir, service } = await npmStart();
    const { port } = new URL(service.httpUrl);
    const client = connect(Number(port), "127.0.0.1");
    onTestFinished(() => void client.destroy());
    let received = "";
    client.on("data", (bytes) => {
      received += bytes;
    });
    const authorization = `Authorization: Bearer ${readSecret(join(dataDir, "first.key"))}`;
    const head = [
      "POST /v1/keys.listKeys HTTP/1.1",
      "Host: localhost",
      authorization,
      "Content-Type: application/json",
    ];
    client.write([...head, "Content-Length: 2", "Expect: 100-continue", "", ""].join("\r\n"));
    await until("the call is under way", () => received.includes("100 Continue") || undefined);

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
    await ending(service);
  });

  test("SIGTERM to npm, as process managers send it, stops the service too and leaves nothing behind", async () => {
    const { place, service } = await npmStart();
    const family = service.family();

    service.signal("SIGTERM");
    expect(await leftOf(family, place.folder)).toEqual([]);
  });
});

/** In a private copy, because `npm start` builds, and others run from the build of the checkout. */
async function npmStart() {
  const place = makePlace();
  const cwd = join(place.folder, "checkout");
  copySources(cwd);
  const service = await start(place, { command: ["npm", "start"], cwd, set: { DATA_DIR: undefined } });
  return { place, dataDir: join(cwd, ".latchkey"), service };
}
