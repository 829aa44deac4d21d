import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { context, propagation, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import {
  InMemorySpanExporter,
  NodeTracerProvider,
  type ReadableSpan,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-node";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { KeysService } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { hashSecret } from "../../../src/keys/secret.js";
import { succeed } from "../../support/calls.js";
import { createWorkspace, post, send } from "../../support/clients/http-requests.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
const { listKeys } = KeysService.method;

let app: TestApp;
let workspaceId: string;
let key: string;

beforeAll(async () => {
  provider.register();
  app = await openTestApp();
});
afterAll(async () => {
  await app.close();
  await provider.shutdown();
  // Other tests run in the same process.
  for (const api of [trace, propagation, context]) api.disable();
});
beforeEach(async () => {
  ({ workspaceId, key } = await createWorkspace(app.httpUrl));
  await succeed(app.httpUrl, "keys.listKeys", key, {});
  exporter.reset();
});

/** The client's span. */
const parent = { traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331" };
const traceparent = `00-${parent.traceId}-${parent.spanId}-01`;

/** Lists keys with a `traceparent`, over each protocol. */
const listings: [protocol: string, system: string, list: () => Promise<unknown>][] = [
  [
    "HTTP",
    "http_json",
    () =>
      send(app.httpUrl, "/v2/keys.listKeys", {
        key,
        headers: { traceparent, "content-type": "application/json" },
        body: "{}",
      }),
  ],
  ["gRPC", "grpc", () => listOver(createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` }))],
  ["Connect", "connect_rpc", () => listOver(createConnectTransport({ baseUrl: app.httpUrl, httpVersion: "1.1" }))],
  ["gRPC-Web", "connect_rpc", () => listOver(createGrpcWebTransport({ baseUrl: app.httpUrl, httpVersion: "1.1" }))],
];

function listOver(transport: ReturnType<typeof createGrpcTransport>): Promise<unknown> {
  return transport.unary(listKeys, undefined, 5_000, { authorization: `Bearer ${key}`, traceparent }, {});
}

/** The only server span, once it has ended. That may be shortly after the response. */
async function serverSpan(): Promise<ReadableSpan> {
  const found = () => exporter.getFinishedSpans().filter(({ kind }) => kind === SpanKind.SERVER);
  await expect.poll(() => found().length, { timeout: 5_000 }).toBe(1);
  return found()[0] as ReadableSpan;
}

const childrenOf = (span: ReadableSpan) =>
  exporter
    .getFinishedSpans()
    .filter(({ parentSpanContext }) => parentSpanContext?.spanId === span.spanContext().spanId);

describe.each(listings)("with an SDK, a call over %s", (_protocol, system, list) => {
  it("is a child span of the client's span, and its statement is a child span of the call", async () => {
    await list();
    const call = await serverSpan();
    expect(call.name).toBe("latchkey.v1.KeysService/ListKeys");
    expect(call.spanContext().traceId).toBe(parent.traceId);
    expect(call.parentSpanContext).toMatchObject(parent);
    expect(call.attributes).toMatchObject({
      "rpc.system": system,
      "rpc.service": "latchkey.v1.KeysService",
      "rpc.method": "ListKeys",
      "latchkey.code": "ok",
      "latchkey.workspace_id": workspaceId,
      "latchkey.request_id": expect.stringMatching(/^req_/),
    });
    expect(call.status.code).toBe(SpanStatusCode.UNSET);

    const [statement, ...more] = childrenOf(call);
    expect(more).toEqual([]);
    expect(statement).toMatchObject({ name: "postgresql", kind: SpanKind.CLIENT });
    expect(statement?.spanContext().traceId).toBe(parent.traceId);
    expect(statement?.attributes).toMatchObject({
      "db.system.name": "postgresql",
      "db.operation.name": "SELECT",
      "db.query.text": expect.stringMatching(/^select .* from keys\s.*\$1/s),
    });
    expect(JSON.stringify(statement?.attributes)).not.toContain(workspaceId);
  });
});

describe("with an SDK", () => {
  it("a call without a traceparent begins a new trace", async () => {
    await post(app.httpUrl, "/v2/keys.listKeys", key, {});
    const call = await serverSpan();
    expect(call.parentSpanContext).toBeUndefined();
  });

  it("the lookups of a call are child spans: first Redis, then PostgreSQL", async () => {
    const { key: other } = await succeed<{ key: string }>(app.httpUrl, "keys.createKey", key, {});
    exporter.reset();
    await succeed(app.httpUrl, "keys.verifyKey", key, { key: other });
    const call = await serverSpan();
    const systems = childrenOf(call).map(({ name, attributes }) => [name, attributes["db.system.name"]]);
    expect(systems).toEqual([
      ["GET", "redis"],
      ["postgresql", "postgresql"],
    ]);
  });

  it("a cached key causes no child span", async () => {
    await succeed(app.httpUrl, "keys.verifyKey", key, { key });
    expect(childrenOf(await serverSpan())).toEqual([]);
  });

  it("the span of a refused call has the error code, but not the status ERROR", async () => {
    await succeed(app.httpUrl, "workspaces.disableWorkspace", operatorKey, { workspaceId, reason: "UNPAID_BILLING" });
    exporter.reset();
    await post(app.httpUrl, "/v2/keys.listKeys", key, {});
    const { attributes, status } = await serverSpan();
    const code = "authorization/workspace_disabled";
    expect(attributes).toMatchObject({ "latchkey.code": code, "error.type": code });
    expect(status.code).toBe(SpanStatusCode.UNSET);
  });

  it("cancellation: the span of a cancelled statement has the code of the cancellation, and no values", async () => {
    const sql = openSql(app.databaseUrl, { max: 1, onnotice: () => {} });
    await sql.begin(async (locking) => {
      await locking`lock table audit_events in access exclusive mode`;
      const { createKey } = KeysService.method;
      const transport = createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` });
      const headers = { authorization: `Bearer ${key}` };
      await expect(transport.unary(createKey, undefined, 500, headers, { name: "unspoken" })).rejects.toThrow();
      const call = await serverSpan();
      await expect.poll(() => childrenOf(call).length, { timeout: 5_000 }).toBe(1);
      const [statement] = childrenOf(call);
      expect(statement?.attributes).toMatchObject({ "error.type": "57014" });
      expect(statement?.status.code).toBe(SpanStatusCode.ERROR);
    });
    await sql.end();
    expect(exportedText()).not.toContain("unspoken");
  });

  it("spans contain no secret and no hash of one", async () => {
    const { key: other } = await succeed<{ key: string }>(app.httpUrl, "keys.createKey", key, {});
    await succeed(app.httpUrl, "keys.verifyKey", key, { key: other });
    await succeed(app.httpUrl, "keys.whoami", key, { key: other });
    await post(app.httpUrl, "/v2/keys.listKeys", `${key}x`, {});
    await expect.poll(() => exporter.getFinishedSpans().length).toBeGreaterThan(5);
    for (const secret of [key, other]) {
      expect(exportedText()).not.toContain(secret);
      expect(exportedText()).not.toContain(hashSecret(secret));
    }
  });
});

/** All exported spans as text. */
function exportedText(): string {
  return JSON.stringify(
    exporter
      .getFinishedSpans()
      .map(({ name, attributes, events, links, status }) => [name, attributes, events, links, status]),
  );
}
