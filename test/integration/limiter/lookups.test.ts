import { setTimeout as sleep } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { MultiLimitRequestSchema } from "../../../gen/latchkey/v1/rate_limits_service_pb.js";
import { callUnary, openGrpcJs } from "../../support/clients/grpc-js.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openUnchecked, type UncheckedClient } from "../../support/clients/unchecked.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { tenMinutes } from "./two-replicas.js";

let app: TestApp;
let flooding: string;
let other: string;
let clients: readonly UncheckedClient[];

beforeAll(async () => {
  // The clients run in this process, too, so the service must not shed calls because of its CPU load.
  app = await openTestApp({ guard: { accepts: () => true } });
  [flooding, other] = (await Promise.all([createWorkspace(app.httpUrl), createWorkspace(app.httpUrl)])).map(
    ({ key }) => key,
  ) as [string, string];
  clients = (["gRPC by connect-node", "HTTP"] as const).map((kind) => openUnchecked(kind, app));
});
afterAll(async () => {
  for (const client of clients) client.close();
  await app.close();
});

/** A use in a namespace that no cache has. */
const freshUse = () => ({ namespace: `n ${Math.random()}`, identifier: "user", limit: 10, duration: tenMinutes });
const freshUses = (count: number) => Array.from({ length: count }, freshUse);
const encode = (uses: ReturnType<typeof freshUses>) => {
  const limits = uses.map(({ limit, duration, ...use }) => ({
    ...use,
    limit: BigInt(limit),
    duration: BigInt(duration),
  }));
  return toBinary(MultiLimitRequestSchema, create(MultiLimitRequestSchema, { limits }));
};
const multiLimit = "/latchkey.v1.RateLimitsService/MultiLimit";

/** Lets every lookup of overrides wait until the returned function is called. */
async function delayLookups(): Promise<() => Promise<void>> {
  const sql = openSql(app.databaseUrl, { max: 1, onnotice: () => {} });
  onTestFinished(() => sql.end());
  await sql`begin`;
  await sql`lock table rate_limit_overrides in access exclusive mode`;
  return async () => void (await sql`rollback`);
}

it("a workspace that uses many new namespaces at once is refused itself, and other workspaces are served", async () => {
  const [grpc] = clients as [UncheckedClient];
  // Both keys are in memory from here on.
  for (const key of [flooding, other]) {
    expect(await grpc.call("limit", key, freshUse())).toMatchObject({ kind: "success" });
  }

  const connection = openGrpcJs(app.grpcAddress);
  onTestFinished(() => connection.close());
  // As many calls as one connection can have in flight. They are encoded before, so that they arrive together.
  const requests = Array.from({ length: 250 }, () => encode(freshUses(50)));
  const endDelay = await delayLookups();
  let refused: () => void;
  const firstRefusal = new Promise<void>((resolve) => {
    refused = resolve;
  });
  const flood = requests.map(async (message) => {
    const { error } = await callUnary(connection, multiLimit, [["authorization", `Bearer ${flooding}`]], message);
    if (error) refused();
    return error?.details;
  });
  await firstRefusal;
  const calls = clients.flatMap((client) => [
    ...Array.from({ length: 5 }, () => client.call("limit", other, freshUse())),
    client.call("multiLimit", other, { limits: freshUses(50) }),
  ]);
  await endDelay();

  for (const outcome of await Promise.all(calls)) expect(outcome).toMatchObject({ kind: "success" });
  expect(await Promise.all(flood)).toContainEqual(expect.stringMatching(/1000 lookups of the workspace/));
  expect(await grpc.call("multiLimit", flooding, { limits: freshUses(50) })).toMatchObject({ kind: "success" });
});

it("uses that wait for the same namespace are one lookup, however many they are", async () => {
  const [grpc] = clients as [UncheckedClient];
  const endDelay = await delayLookups();
  const use = freshUse();
  const limits = (call: number) => Array.from({ length: 50 }, (_, user) => ({ ...use, identifier: `${call}.${user}` }));
  const calls = Array.from({ length: 25 }, (_, call) => grpc.call("multiLimit", other, { limits: limits(call) }));
  await sleep(300); // until all of them wait
  await endDelay();
  for (const outcome of await Promise.all(calls)) expect(outcome).toMatchObject({ kind: "success" });
});
