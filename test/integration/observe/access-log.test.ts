import { afterAll, describe, expect, it } from "vitest";
import { createLog } from "../../../src/observe/log.js";
import { openProtocols } from "../../support/clients/all.js";
import type { CallerCredential } from "../../support/clients/headers.js";
import { send, sendBytes } from "../../support/clients/http-requests.js";
import { requestIdForm } from "../../support/clients/outcome.js";
import type { CallRequest } from "../../support/clients/protocol-client.js";
import { openFileService } from "../../support/file-service.js";
import { openTestApp, operatorKey } from "../../support/harness.js";
import { type OperationName, operationOf } from "../../support/operations.js";

/** The parsed log lines. */
const lines: Record<string, unknown>[] = [];
const log = createLog("info", { destination: { write: (line: string) => void lines.push(JSON.parse(line)) } });

const { app, ...home } = await openFileService({ log });
const protocols = openProtocols(app);
afterAll(() => protocols.close());

/** The call lines that are logged during `work`. Waits for at least `count` of them, and until no more follow. */
async function linesOf(count: number, work: () => Promise<unknown>): Promise<Record<string, unknown>[]> {
  const before = lines.length;
  const calls = () => lines.slice(before).filter(({ msg }) => msg === "call");
  await work();
  await expect.poll(() => calls().length, { timeout: 5_000 }).toBeGreaterThanOrEqual(count);
  await send(app.httpUrl, "/marker", { method: "PUT" }); // its line comes after all others
  await expect.poll(() => calls().at(-1), { timeout: 5_000 }).toMatchObject({ method: "PUT (no route)" });
  return calls().slice(0, -1);
}

describe.each(["http", "grpc", "connect"] as const)("access log: a call over %s is one log line", (protocol) => {
  const cases: [string, OperationName, () => CallerCredential, CallRequest, string, boolean][] = [
    ["that succeeds", "listKeys", () => home.key, {}, "ok", true],
    ["of the operator, without a workspace", "listWorkspaces", () => operatorKey, {}, "ok", false],
    ["without a credential", "listKeys", () => [], {}, "authentication/missing", false],
    ["that is not authorized", "listWorkspaces", () => home.key, {}, "authorization/insufficient_permissions", false],
    ["with invalid input", "listKeys", () => home.key, { limit: 0 }, "application/invalid_input", true],
  ];

  it.each(cases)("%s", async (_which, operation, credential, request, code, ofWorkspace) => {
    const written = await linesOf(1, () => protocols[protocol].call(operation, credential(), request));
    const { rpc } = operationOf(operation);
    expect(written).toEqual([
      {
        level: 30,
        time: expect.anything(),
        protocol,
        method: `/${rpc.parent.typeName}/${rpc.name}`,
        requestId: expect.stringMatching(requestIdForm),
        code,
        durationMs: expect.any(Number),
        msg: "call",
        ...(ofWorkspace && { workspaceId: home.workspaceId }),
      },
    ]);
    const durationMs = Number(written[0]?.["durationMs"]);
    expect(durationMs).toBeGreaterThan(0);
    expect(durationMs, "in milliseconds, to the microsecond").toBe(Number(durationMs.toFixed(3)));
  });
});

describe("the line of a call", () => {
  it("has the request id of the response", async () => {
    let returnedId: unknown;
    const [line] = await linesOf(1, async () => {
      const { headers } = await send(app.httpUrl, "/v1/keys.listKeys", { key: home.key });
      returnedId = headers["x-request-id"];
    });
    expect(line?.["requestId"]).toBe(returnedId);
  });

  it.each([
    ["of an unknown path does not contain the path", () => send(app.httpUrl, "/some/where?else=1"), "POST (no route)"],
    ["of bytes that are not HTTP has no method", () => sendBytes(app.httpUrl, "nonsense\r\n\r\n"), "(none)"],
  ])("%s", async (_which, work, method) => {
    const written = await linesOf(1, work);
    expect(written).toMatchObject([{ protocol: "http", method, requestId: expect.stringMatching(requestIdForm) }]);
    expect(written[0]?.["durationMs"]).toBeGreaterThanOrEqual(0);
  });
});

describe("a probe", () => {
  const probes = ["/livez", "/readyz", "/v2/liveness"];

  it.each(probes)("%s that succeeds has no line, so that probes do not hide calls", async (path) => {
    const written = await linesOf(0, async () => {
      expect(await send(app.httpUrl, path, { method: "GET" })).toMatchObject({ status: 200 });
      expect(await send(app.httpUrl, path, { method: "HEAD" })).toMatchObject({ status: 200 });
    });
    expect(written).toEqual([]);
  });

  it("has a line at the level debug", async () => {
    const debugLines: Record<string, unknown>[] = [];
    const destination = { write: (line: string) => void debugLines.push(JSON.parse(line)) };
    const verbose = await openTestApp({ log: createLog("debug", { destination }) });
    try {
      for (const path of probes) await send(verbose.httpUrl, path, { method: "GET" });
      const expected = probes.map((path) => expect.objectContaining({ level: 20, method: `GET ${path}`, code: "ok" }));
      await expect.poll(() => debugLines).toEqual(expect.arrayContaining(expected));
    } finally {
      await verbose.close();
    }
  });

  it("that fails has a line at the level info, with the reason", async () => {
    const stopping = await openTestApp({ log, shutdownDelayMs: 500 });
    const before = lines.length;
    const stopped = stopping.stopAccepting();
    expect(await send(stopping.httpUrl, "/readyz", { method: "GET" })).toMatchObject({ status: 503 });
    await stopped;
    await stopping.close();
    const expected = { level: 30, method: "GET /readyz", code: expect.stringMatching(/^application\//) };
    expect(lines.slice(before)).toContainEqual(expect.objectContaining(expected));
  });
});
