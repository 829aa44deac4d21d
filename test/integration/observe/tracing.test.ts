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
import { ask, createWorkspace, post } from "../../support/clients/http-requests.js";
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
  // Other tests run in this process, too.
  for (const api of [trace, propagation, context]) api.disable();
});
beforeEach(async () => {
  ({ workspaceId, key } = await createWorkspace(app.httpUrl));
  await succeed(app.httpUrl, "keys.listKeys", key, {});
  exporter.reset();
});

/** The span that a client tells of. */
const parent = { traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331" };
const traceparent = `00-${parent.traceId}-${parent.spanId}-01`;

/** Ways to list keys as a client that is traced. */
const listings: [protocol: string, system: string, list: () => Promise<unknown>][] = [
  [
    "HTTP",
    "http_json",
    () =>
      ask(app.httpUrl, "/v2/keys.listKeys", {
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

/** The one span of a call, when it has ended; a call may end a moment after it was answered. */
async function serverSpan(): Promise<ReadableSpan> {
  const found = () => exporter.getFinishedSpans().filter(({ kind }) => kind === SpanKind.SERVER);
  await expect.poll(() => found().length, { timeout: 5_000 }).toBe(1);
  return found()[0] as ReadableSpan;
}

const under = (span: ReadableSpan) =>
  exporter
    .getFinishedSpans()
    .filter(({ parentSpanContext }) => parentSpanContext?.spanId === span.spanContext().spanId);

describe.each(listings)("with an SDK, a call over %s", (_protocol, system, list) => {
  it("is a span under its client's, and its statement is one under that", async () => {
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

    const [statement, ...more] = under(call);
    expect(more).toEqual([]);
    expect(statement).toMatchObject({ name: "postgresql", kind: SpanKind.CLIENT });
    expect(statement?.spanContext().traceId).toBe(parent.traceId);
    expect(statement?.attributes).toMatchObject({
      "db.system.name": "postgresql",
      "db.operation.name": "SELECT",
      "db.query.text": expect.stringMatching(/^select .* from keys .*\$1/s),
    });
    expect(JSON.stringify(statement?.attributes)).not.toContain(workspaceId);
  });
});

describe("with an SDK", () => {
  it("a call without a traceparent begins a trace of its own", async () => {
    await post(app.httpUrl, "/v2/keys.listKeys", key, {});
    const call = await serverSpan();
    expect(call.parentSpanContext).toBeUndefined();
  });

  it("what is looked up for a call is told under it: first Redis, then Postgres", async () => {
    const { key: other } = await succeed<{ key: string }>(app.httpUrl, "keys.createKey", key, {});
    exporter.reset();
    await succeed(app.httpUrl, "keys.verifyKey", key, { key: other });
    const call = await serverSpan();
    const systems = under(call).map(({ name, attributes }) => [name, attributes["db.system.name"]]);
    expect(systems).toEqual([
      ["GET", "redis"],
      ["postgresql", "postgresql"],
    ]);
  });

  it("what is held needs no span but the call's", async () => {
    await succeed(app.httpUrl, "keys.verifyKey", key, { key });
    expect(under(await serverSpan())).toEqual([]);
  });

  it("a refusal is told with its code, and is no error of ours", async () => {
    await succeed(app.httpUrl, "workspaces.disableWorkspace", operatorKey, { workspaceId, reason: "UNPAID_BILLING" });
    exporter.reset();
    await post(app.httpUrl, "/v2/keys.listKeys", key, {});
    const { attributes, status } = await serverSpan();
    const code = "authorization/workspace_disabled";
    expect(attributes).toMatchObject({ "latchkey.code": code, "error.type": code });
    expect(status.code).toBe(SpanStatusCode.UNSET);
  });

  it("a statement that nobody waits for any more is told as cancelled, without its values", async () => {
    const sql = openSql(app.databaseUrl, { max: 1, onnotice: () => {} });
    await sql.begin(async (locking) => {
      await locking`lock table audit_events in access exclusive mode`;
      const { createKey } = KeysService.method;
      const transport = createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` });
      const headers = { authorization: `Bearer ${key}` };
      await expect(transport.unary(createKey, undefined, 500, headers, { name: "unspoken" })).rejects.toThrow();
      const call = await serverSpan();
      await expect.poll(() => under(call).length, { timeout: 5_000 }).toBe(1);
      const [statement] = under(call);
      expect(statement?.attributes).toMatchObject({ "error.type": "57014" });
      expect(statement?.status.code).toBe(SpanStatusCode.ERROR);
    });
    await sql.end();
    expect(told()).not.toContain("unspoken");
  });

  it("no secret is told, nor what is made from one", async () => {
    const { key: other } = await succeed<{ key: string }>(app.httpUrl, "keys.createKey", key, {});
    await succeed(app.httpUrl, "keys.verifyKey", key, { key: other });
    await succeed(app.httpUrl, "keys.whoami", key, { key: other });
    await post(app.httpUrl, "/v2/keys.listKeys", `${key}x`, {});
    await expect.poll(() => exporter.getFinishedSpans().length).toBeGreaterThan(5);
    for (const secret of [key, other]) {
      expect(told()).not.toContain(secret);
      expect(told()).not.toContain(hashSecret(secret));
    }
  });
});

/** Everything that was exported. */
function told(): string {
  return JSON.stringify(
    exporter
      .getFinishedSpans()
      .map(({ name, attributes, events, links, status }) => [name, attributes, events, links, status]),
  );
}
