import { request } from "node:http";
import { constants } from "node:http2";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { create as createMessage, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import type postgres from "postgres";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { CreateKeyRequestSchema, KeysService } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { createLog } from "../../../src/observe/log.js";
import { fairRules } from "../../../src/storage/postgres/shares.js";
import { encode } from "../../robustness/fuzz/kind.js";
import { operationNamed } from "../../robustness/fuzz/operations.js";
import { readOutcome } from "../../robustness/fuzz/outcome.js";
import { grpcFrame } from "../../support/clients/grpc-streams.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { callWithHeaders } from "../../support/clients/http2-frames.js";
import { openRawClient } from "../../support/clients/raw-client.js";
import { type RawStream, toRawRequest } from "../../support/clients/raw-request.js";
import { openTestApp, type TestApp } from "../../support/harness.js";

const { createKey, listKeys } = KeysService.method;
const { share } = fairRules.ordinary;

/** A log line. */
interface LogLine {
  readonly method?: string;
  readonly code?: string;
}

let app: TestApp;
let sql: postgres.Sql;
let key: string;
const lines: LogLine[] = [];
const protocols = new Map<string, Transport>();

beforeAll(async () => {
  app = await openTestApp({
    log: createLog("info", { destination: { write: (line) => lines.push(JSON.parse(line)) } }),
  });
  sql = openSql(app.databaseUrl, { max: 2, onnotice: () => {} });
  const { httpUrl, grpcAddress } = app;
  protocols.set("gRPC", createGrpcTransport({ baseUrl: `http://${grpcAddress}` }));
  protocols.set("Connect", createConnectTransport({ baseUrl: httpUrl, httpVersion: "1.1" }));
  protocols.set("gRPC-Web", createGrpcWebTransport({ baseUrl: httpUrl, httpVersion: "1.1" }));
});
afterAll(async () => {
  await sql.end({ timeout: 1 });
  await app.close();
});
beforeEach(async () => {
  ({ key } = await createWorkspace(app.httpUrl));
  await keyNames();
  lines.length = 0;
});

/** Creates a key with this name. Resolves to OK or the name of the error code. */
async function create(protocol: string, name: string, options: { signal?: AbortSignal; timeoutMs?: number } = {}) {
  const headers = { authorization: `Bearer ${key}` };
  try {
    await protocols.get(protocol)?.unary(createKey, options.signal, options.timeoutMs, headers, { name });
    return "OK";
  } catch (error) {
    return Code[ConnectError.from(error).code];
  }
}

/** The names of all keys of the workspace. */
async function keyNames(): Promise<string[]> {
  const headers = { authorization: `Bearer ${key}` };
  const response = await protocols.get("gRPC")?.unary(listKeys, undefined, 5_000, headers, {});
  return response?.message.keys.map(({ name }) => name ?? "") ?? [];
}

/** Blocks every change while a function runs: each change writes to the locked table. */
async function whileLocked<T>(run: () => Promise<T>): Promise<T> {
  const connection = await sql.reserve();
  try {
    await connection`begin`;
    await connection`lock table audit_events in access exclusive mode`;
    return await run();
  } finally {
    await connection`rollback`;
    connection.release();
  }
}

/** The number of statements of the service that wait for a lock in PostgreSQL. */
async function countBlocked(): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
  return row?.count ?? 0;
}

const untilBlocked = (count: number) => expect.poll(countBlocked, { timeout: 5_000 }).toBe(count);
const expectLogged = () =>
  expect.poll(() => lines.filter(({ method }) => method?.endsWith("/CreateKey")), { timeout: 5_000 });

it.each([constants.NGHTTP2_NO_ERROR, constants.NGHTTP2_CANCEL])(
  "cancellation over gRPC: a call reset by its client (code %i) before the end of the request is not performed",
  async (code) => {
    // Written as raw bytes, because Node's client would end the request first.
    const body = grpcFrame(
      Buffer.from(toBinary(CreateKeyRequestSchema, createMessage(CreateKeyRequestSchema, { name: "reset" }))),
    );
    const headers = [
      [":path", "/latchkey.v1.KeysService/CreateKey"] as const,
      ["authorization", `Bearer ${key}`] as const,
    ];
    const call = callWithHeaders(headers, body);
    call[call.length - body.length - 5] = 0; // clears END_STREAM in the flags of the DATA frame
    const reset = Buffer.from([0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, code]);
    const { hostname, port } = new URL(`http://${app.grpcAddress}`);
    const socket = connect(Number(port), hostname);
    socket.write(call);
    await sleep(100);
    socket.write(reset);
    await expectLogged().toHaveLength(1);
    socket.destroy();
    expect(await keyNames()).toEqual(["first key"]);
  },
);

describe.each(["gRPC", "Connect", "gRPC-Web"])("a change over %s is cancelled in PostgreSQL", (protocol) => {
  it("when its deadline passes", async () => {
    await whileLocked(async () => {
      const late = create(protocol, "late", { timeoutMs: 1_000 });
      await untilBlocked(1);
      expect(await late).toBe("DeadlineExceeded");
      await untilBlocked(0);
    });
    expect(await keyNames()).toEqual(["first key"]);
  });

  it("when its client cancels the call, which is logged", async () => {
    await whileLocked(async () => {
      const client = new AbortController();
      const cancelled = create(protocol, "cancelled", { signal: client.signal });
      await untilBlocked(1);
      client.abort();
      expect(await cancelled).toBe("Canceled");
      await untilBlocked(0);
    });
    expect(await keyNames()).toEqual(["first key"]);
    await expectLogged().toEqual([expect.objectContaining({ code: "cancelled" })]);
  });
});

it("a gRPC client that outwaits its deadline gets deadline_exceeded, with the logged request id", async () => {
  await whileLocked(async () => {
    const client = openRawClient(app);
    const operation = operationNamed("createKey");
    const sent = toRawRequest("grpc", operation, key, encode("grpc", operation, { name: "late" })) as RawStream;
    const response = await client.send({ ...sent, headers: [...sent.headers, ["grpc-timeout", "300m"]] });
    client.close();
    const { requestId, ...outcome } = readOutcome(operation, response);
    expect(outcome).toMatchObject({ ok: false, code: "application/deadline_exceeded" });
    await expectLogged().toEqual([expect.objectContaining({ requestId, code: "application/deadline_exceeded" })]);
  });
});

describe("a change over HTTP is cancelled in PostgreSQL", () => {
  it("when its client disconnects, which is logged", async () => {
    await whileLocked(async () => {
      const sent = request(`${app.httpUrl}/v2/keys.createKey`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      });
      sent.on("error", () => {});
      sent.end(JSON.stringify({ name: "gone" }));
      await untilBlocked(1);
      sent.destroy();
      await untilBlocked(0);
    });
    expect(await keyNames()).toEqual(["first key"]);
    await expectLogged().toEqual([expect.objectContaining({ code: "cancelled" })]);
  });
});

describe("while a workspace uses its whole share of the connection pool", () => {
  it("a change whose deadline passes is never made, and the other changes are", async () => {
    const others = Array.from({ length: share }, (_, index) => `key ${index}`);
    const created = await whileLocked(async () => {
      const creations = others.map((name) => create("gRPC", name));
      await untilBlocked(share);
      expect(await create("gRPC", "too late", { timeoutMs: 300 })).toBe("DeadlineExceeded");
      expect(await countBlocked()).toBe(share);
      return creations;
    });
    expect(await Promise.all(created)).toEqual(others.map(() => "OK"));
    expect((await keyNames()).sort()).toEqual(["first key", ...others].sort());
  });
});

describe("while clients cancel calls at random moments", () => {
  it("all other calls succeed, and their changes are stored", async () => {
    const completed: string[] = [];
    const work = Array.from({ length: 120 }, async (_, index) => {
      await sleep(index);
      const name = `random moment ${index}`;
      if (index % 2 === 0) {
        await create("Connect", name, { signal: AbortSignal.timeout(1 + (index % 11)) });
      } else {
        completed.push(name);
        expect(await create("gRPC", name)).toBe("OK");
      }
    });
    await Promise.all(work);
    const [row] = await sql`select count(*)::int from keys where name = any(${completed}) and deleted_at is null`;
    expect(row?.["count"]).toBe(completed.length);
  });
});
