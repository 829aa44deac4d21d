import { describe, expect, it } from "vitest";
import type { App } from "../../src/app.js";
import { callJson } from "../support/clients/json-call.js";
import { connectSocket } from "../support/clients/sockets.js";
import { openFileApp } from "../support/file-service.js";
import { operatorKey } from "../support/harness.js";

// The service caches the last credential of each connection; here one connection sends several.
const app = await openFileApp();

describe("authentication per call: a call is authenticated by its own credential", () => {
  it("regardless of earlier calls on the same connection", async () => {
    const { key: one } = await call(operatorKey, "workspaces.createWorkspace", { name: "one" });
    const { key: other, workspaceId } = await call(operatorKey, "workspaces.createWorkspace", { name: "other" });
    const connection = await openConnection(app);
    expect(await connection.status(operatorKey, "workspaces.listWorkspaces")).toBe(200);
    expect(await connection.status(one, "workspaces.listWorkspaces")).toBe(403);
    expect(await connection.status(one, "keys.listKeys")).toBe(200);
    expect(await connection.status(other, "keys.listKeys")).toBe(200);
    await call(operatorKey, "workspaces.disableWorkspace", { workspaceId, reason: "UNPAID_BILLING" });
    expect(await connection.status(other, "keys.listKeys")).toBe(403);
    expect(await connection.status(one, "keys.listKeys")).toBe(200);
    expect(await connection.status(`${one}x`, "keys.listKeys")).toBe(401);
    expect(await connection.status(undefined, "keys.listKeys")).toBe(401);
    expect(await connection.status(other, "keys.listKeys")).toBe(403);
    connection.close();
  });
});

async function call(credential: string, operation: string, body: unknown) {
  return (await callJson<{ key: string; workspaceId: string }>(app.httpUrl, `/v2/${operation}`, credential, body)).data;
}

/** A connection that stays open between calls. */
async function openConnection({ httpUrl }: Pick<App, "httpUrl">) {
  const socket = await connectSocket(httpUrl);
  let received = "";
  socket.setEncoding("utf8").on("data", (text) => {
    received += text;
  });
  return {
    close: () => socket.destroy(),
    async status(credential: string | undefined, operation: string): Promise<number> {
      received = "";
      const authorization = credential === undefined ? "" : `Authorization: Bearer ${credential}\r\n`;
      socket.write(
        `POST /v2/${operation} HTTP/1.1\r\nHost: localhost\r\n${authorization}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}`,
      );
      await expect.poll(() => received, { timeout: 5_000, interval: 5 }).toContain("\r\n\r\n");
      return Number(received.split(" ")[1]);
    },
  };
}
