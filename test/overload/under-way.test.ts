import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { type Answer, ask, createWorkspace, expectFailure, expectSuccess } from "../gateway/http.js";
import { openTestApp, type TestApp } from "../harness.js";
import { readSamples, total } from "../observe/samples.js";

/** Less than the clients below bring together, and more than any of them brings alone. */
const limits = { bytesInAll: 2 ** 19 };
const rpc = "/latchkey.v1.KeysService/ListKeys";

/** What is left when one of those who fill the room was refused is less than this. */
const large = 120_000;
const largeJson = `{${" ".repeat(large)}}`;

let app: TestApp;
let key: string;
beforeAll(async () => {
  app = await openTestApp({ limits, metricsPort: 0 });
  key = (await createWorkspace(app.httpUrl)).key;
});
afterAll(() => app.close());

describe("while clients of HTTP have sent as much as all may together, and finished nothing", () => {
  it("what is large is refused through each door and counted, what is small is served, and all when they have gone", async () => {
    const before = await turnedAway();
    const leave = fillByHttp();
    await expect.poll(turnedAway, { timeout: 10_000 }).toBeGreaterThan(before);

    for (const answer of [await callHttp({ body: largeJson }), await callHttp({ chunks: [Buffer.from(largeJson)] })]) {
      expect(expectFailure(answer, 503, "application/service_unavailable").detail).toContain("did nothing of this");
      expect(answer.headers["retry-after"]).toMatch(/^\d+$/);
    }
    expect(JSON.parse((await callConnect(largeJson)).text).code).toBe("unavailable");
    expect((await turnedAway()) - before).toBeGreaterThanOrEqual(4);

    expectSuccess(await callHttp({ body: "{}" }));
    expectSuccess(await callHttp({ chunks: [Buffer.from("{}")] }));

    leave();
    await expect.poll(async () => (await callHttp({ body: largeJson })).status, { timeout: 10_000 }).toBe(200);
    expectSuccess(await callHttp({ chunks: [Buffer.from(largeJson)] }));
    expect((await callConnect(largeJson)).status).toBe(200);
  });
});

it("what was answered takes no room: many large calls, one after the other, are all served", async () => {
  for (let calls = 0; calls < 6; calls++) {
    expectSuccess(await callHttp({ body: largeJson }));
  }
});

/** Clients of HTTP, whose bodies are read once their key is accepted. */
function fillByHttp(): () => void {
  const { hostname, port } = new URL(app.httpUrl);
  const head = `authorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${largeJson.length}`;
  const sockets = Array.from({ length: 10 }, () => {
    const socket = connect(Number(port), hostname);
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => {}).resume();
    socket.write(`POST /v1/keys.listKeys HTTP/1.1\r\nhost: a\r\n${head}\r\n\r\n${largeJson.slice(0, 100_000)}`);
    return socket;
  });
  return () => {
    for (const socket of sockets) socket.destroy();
  };
}

function callHttp(asked: { body: string } | { chunks: Buffer[] }): Promise<Answer> {
  return ask(app.httpUrl, "/v1/keys.listKeys", { key, headers: { "content-type": "application/json" }, ...asked });
}

function callConnect(body: string): Promise<Answer> {
  return ask(app.httpUrl, rpc, { key, headers: { "content-type": "application/json" }, body });
}

async function turnedAway(): Promise<number> {
  return total(await readSamples(app), "latchkey_shed_total", { bottleneck: "memory" });
}
