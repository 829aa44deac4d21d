import { request } from "node:http";
import { constants } from "node:http2";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { create as createMessage, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { pino } from "pino";
import type postgres from "postgres";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { CreateKeyRequestSchema, KeysService } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { fairRules } from "../../../src/storage/postgres/shares.js";
import { encode } from "../../robustness/fuzz/kind.js";
import { operationNamed } from "../../robustness/fuzz/operations.js";
import { readOutcome } from "../../robustness/fuzz/outcome.js";
import { createSender } from "../../robustness/fuzz/send.js";
import { type StreamSent, sentTo } from "../../robustness/fuzz/sent.js";
import { callWithHead, prefixed } from "../../robustness/overload/bare-grpc.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";

const { createKey, listKeys } = KeysService.method;
const { share } = fairRules.ordinary;

/** A line of the log. */
interface Line {
  readonly method?: string;
  readonly code?: string;
}

let app: TestApp;
let sql: postgres.Sql;
let key: string;
const lines: Line[] = [];
const protocols = new Map<string, Transport>();

beforeAll(async () => {
  app = await openTestApp({ log: pino({ level: "info" }, { write: (line) => lines.push(JSON.parse(line)) }) });
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
  await names();
  lines.length = 0;
});

/** Creates a key of this name; resolves to OK or the name of the code. */
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
async function names(): Promise<string[]> {
  const headers = { authorization: `Bearer ${key}` };
  const answer = await protocols.get("gRPC")?.unary(listKeys, undefined, 5_000, headers, {});
  return answer?.message.keys.map(({ name }) => name ?? "") ?? [];
}

/** Keeps every change waiting for as long as something takes: each needs the table of events. */
async function locking<T>(meanwhile: () => Promise<T>): Promise<T> {
  const own = await sql.reserve();
  try {
    await own`begin`;
    await own`lock table audit_events in access exclusive mode`;
    return await meanwhile();
  } finally {
    await own`rollback`;
    own.release();
  }
}

/** How many statements of the service wait in Postgres for a lock. */
async function countWaiting(): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
  return row?.count ?? 0;
}

const waiting = (count: number) => expect.poll(countWaiting, { timeout: 5_000 }).toBe(count);
const logged = () =>
  expect.poll(() => lines.filter(({ method }) => method?.endsWith("/CreateKey")), { timeout: 5_000 });

it.each([constants.NGHTTP2_NO_ERROR, constants.NGHTTP2_CANCEL])(
  "over gRPC, a call that its client resets (code %i) before it has ended its request is not performed",
  async (code) => {
    // As bytes: Node's client would end the request first.
    const body = prefixed(
      Buffer.from(toBinary(CreateKeyRequestSchema, createMessage(CreateKeyRequestSchema, { name: "reset" }))),
    );
    const head = [
      [":path", "/latchkey.v1.KeysService/CreateKey"] as const,
      ["authorization", `Bearer ${key}`] as const,
    ];
    const call = callWithHead(head, body);
    call[call.length - body.length - 5] = 0; // the flags of the DATA frame: without END_STREAM
    const reset = Buffer.from([0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, code]);
    const { hostname, port } = new URL(`http://${app.grpcAddress}`);
    const socket = connect(Number(port), hostname);
    socket.write(call);
    await sleep(100);
    socket.write(reset);
    await logged().toHaveLength(1);
    socket.destroy();
    expect(await names()).toEqual(["first key"]);
  },
);

describe.each(["gRPC", "Connect", "gRPC-Web"])("over %s, when nobody waits any more for a change", (protocol) => {
  it("because its deadline has passed, its statement is ended in Postgres", async () => {
    await locking(async () => {
      const late = create(protocol, "late", { timeoutMs: 1_000 });
      await waiting(1);
      expect(await late).toBe("DeadlineExceeded");
      await waiting(0);
    });
    expect(await names()).toEqual(["first key"]);
  });

  it("because its client has cancelled it, its statement is ended in Postgres, and the log says so", async () => {
    await locking(async () => {
      const client = new AbortController();
      const cancelled = create(protocol, "cancelled", { signal: client.signal });
      await waiting(1);
      client.abort();
      expect(await cancelled).toBe("Canceled");
      await waiting(0);
    });
    expect(await names()).toEqual(["first key"]);
    await logged().toEqual([expect.objectContaining({ code: "cancelled" })]);
  });
});

it("over gRPC, a client that waits for longer than its deadline is told so, with the id of the line in the log", async () => {
  await locking(async () => {
    const sender = createSender(app);
    const creating = operationNamed("createKey");
    const sent = sentTo("grpc", creating, key, encode("grpc", creating, { name: "late" })) as StreamSent;
    const answer = await sender.send({ ...sent, headers: [...sent.headers, ["grpc-timeout", "300m"]] });
    sender.close();
    const { requestId, ...outcome } = readOutcome(creating, answer);
    expect(outcome).toMatchObject({ ok: false, code: "application/deadline_exceeded" });
    await logged().toEqual([expect.objectContaining({ requestId, code: "application/deadline_exceeded" })]);
  });
});

describe("over HTTP, when the connection of a client is gone", () => {
  it("the statement that ran for it is ended in Postgres, and the log says so", async () => {
    await locking(async () => {
      const sent = request(`${app.httpUrl}/v2/keys.createKey`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      });
      sent.on("error", () => {});
      sent.end(JSON.stringify({ name: "gone" }));
      await waiting(1);
      sent.destroy();
      await waiting(0);
    });
    expect(await names()).toEqual(["first key"]);
    await logged().toEqual([expect.objectContaining({ code: "cancelled" })]);
  });
});

describe("while every connection to Postgres that a workspace may use is taken", () => {
  it("a change whose caller gives up is never made, and those that wait are", async () => {
    const others = Array.from({ length: share }, (_, index) => `key ${index}`);
    const made = await locking(async () => {
      const made = others.map((name) => create("gRPC", name));
      await waiting(share);
      expect(await create("gRPC", "too late", { timeoutMs: 300 })).toBe("DeadlineExceeded");
      expect(await countWaiting()).toBe(share);
      return made;
    });
    expect(await Promise.all(made)).toEqual(others.map(() => "OK"));
    expect((await names()).sort()).toEqual(["first key", ...others].sort());
  });
});

describe("while some callers give up at any moment", () => {
  it("all others are answered, and what they changed is there", async () => {
    const patient: string[] = [];
    const work = Array.from({ length: 120 }, async (_, index) => {
      await sleep(index);
      const name = `any moment ${index}`;
      if (index % 2 === 0) {
        await create("Connect", name, { signal: AbortSignal.timeout(1 + (index % 11)) });
      } else {
        patient.push(name);
        expect(await create("gRPC", name)).toBe("OK");
      }
    });
    await Promise.all(work);
    const [row] = await sql`select count(*)::int from keys where name = any(${patient}) and deleted_at is null`;
    expect(row?.["count"]).toBe(patient.length);
  });
});
