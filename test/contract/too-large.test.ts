import { Agent, request as httpRequest } from "node:http";
import { setTimeout as after } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { openProtocols } from "../support/clients/all.js";
import type { ProtocolName } from "../support/clients/protocol-client.js";
import { openTestApp } from "../support/harness.js";
import { openScene } from "./scene.js";

const protocolNames: readonly ProtocolName[] = ["grpc", "http", "connect", "grpc-web"];
const tooLarge = { externalId: "user_1", meta: { text: "x".repeat(2 ** 21) } };

describe("a request of two megabytes", () => {
  test.each(protocolNames)("is refused with payload_too_large over %s, and nothing is stored", async (name) => {
    const { scene, openAnother } = await openStage(name);
    await scene.refused("application/payload_too_large", "createIdentity", scene.home.key, tooLarge);
    const outcome = await openAnother().call("listIdentities", scene.home.key, {});
    expect(outcome).toMatchObject({ ok: true, data: [] });
  });

  test.each(protocolNames)("over %s does not block shutdown", async (name) => {
    const { scene, closesWithin } = await openStage(name);
    await scene.call("createIdentity", scene.home.key, tooLarge).catch(() => {}); // the test above checks the error
    expect(await closesWithin(5000)).toBe(true);
  });

  test.each([
    ["/v2/identities.createIdentity", "application/json"],
    ["/latchkey.v1.IdentitiesService/CreateIdentity", "application/json"],
    ["/latchkey.v1.IdentitiesService/CreateIdentity", "application/proto"],
    ["/latchkey.v1.IdentitiesService/CreateIdentity", "application/grpc-web+proto"],
  ])("to %s (%s) leaves the client able to call, on the same connection or a new one", async (path, type) => {
    const { app, scene } = await openStage("http");
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    onTestFinished(() => agent.destroy());
    const body = Buffer.alloc(2 ** 21 + 5);
    body.writeUInt32BE(2 ** 21, 1); // the length prefix of a gRPC-Web message
    await post(agent, new URL(path, app.httpUrl), scene.home.key, type, body);
    const listKeys = new URL("/v1/keys.listKeys", app.httpUrl);
    expect(await post(agent, listKeys, scene.home.key, "application/json", Buffer.from("{}"))).toBe(200);
  });
});

/** An application for one test only: effects of a request on it, or on a connection, reach no other test. */
async function openStage(name: ProtocolName) {
  const app = await openTestApp();
  const protocols = openProtocols(app);
  const others = openProtocols(app);
  let closed: Promise<boolean> | undefined;

  /** Closes the clients, then the application. Returns whether it closed in time. */
  const closesWithin = (ms: number): Promise<boolean> => {
    protocols.close();
    others.close();
    closed ??= app.close().then(() => true);
    return Promise.race([closed, after(ms, false)]);
  };
  onTestFinished(async () => {
    await closesWithin(1000);
  });
  const clock = { now: Date.now, advance: app.advance };
  return { app, scene: await openScene(protocols[name], clock), openAnother: () => others[name], closesWithin };
}

/** Posts over the agent's one connection. Returns the status, or the error message. */
function post(agent: Agent, url: URL, key: string, type: string, body: Uint8Array): Promise<number | string> {
  return new Promise((resolve) => {
    const headers = { authorization: `Bearer ${key}`, "content-type": type };
    const signal = AbortSignal.timeout(5000);
    const request = httpRequest(url, { method: "POST", agent, headers, signal }, (response) => {
      response.resume().on("end", () => resolve(response.statusCode ?? 0));
    });
    request.on("error", (error) => resolve(error.message));
    request.end(body);
  });
}
