import { afterAll, beforeAll, expect, it } from "vitest";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openUnchecked } from "../../support/clients/unchecked.js";
import { redisAt } from "../../support/harness.js";
import { type RedisServer, startRedis } from "../../verification/faults/redis-server.js";
import { openTwoReplicas, type TwoReplicas, tenMinutes } from "./two-replicas.js";

const maxCounters = 200;
const identifiersOfCall = 50;

let server: RedisServer;
let replicas: TwoReplicas;

beforeAll(async () => {
  server = await startRedis();
  replicas = await openTwoReplicas({ redis: redisAt(server.url), maxCounters });
});
afterAll(async () => {
  await replicas?.close();
  await server?.kill();
});

interface LimitResult {
  readonly passed: boolean;
  readonly perProcess?: boolean;
}

/** Another workspace, which uses many identifiers with each call. */
async function openFlood() {
  const { key, workspaceId } = await createWorkspace(replicas.apps[0].httpUrl);
  const clients = replicas.apps.map((app) => openUnchecked("gRPC by connect-node", app));
  afterAll(() => clients.forEach((client) => void client.close()));
  return {
    counters: async () => (await server.admin.keys(`latchkey:limit:{${workspaceId}}*`)).length,
    async use(replica: 0 | 1, identifiers: readonly string[]): Promise<readonly LimitResult[]> {
      const limits = identifiers.map((identifier) => ({ namespace: "x", identifier, limit: 2, duration: tenMinutes }));
      const outcome = await clients[replica]?.call("multiLimit", key, { limits });
      if (outcome?.kind !== "success") return expect.fail(JSON.stringify(outcome));
      return (outcome.data as { limits: LimitResult[] }).limits;
    },
  };
}

it("a workspace that invents identifiers has a bounded number of counters in Redis, and those of others stay exact", async () => {
  const flood = await openFlood();
  const identifiersOf = (call: number) => Array.from({ length: identifiersOfCall }, (_, index) => `${call} ${index}`);
  const results: LimitResult[] = [];
  for (let call = 0; call < 20; call++) results.push(...(await flood.use(call % 2 === 0 ? 0 : 1, identifiersOf(call))));

  // A call that begins below the quota may end above it.
  const maxOfProcess = maxCounters + identifiersOfCall;
  expect(await flood.counters()).toBeGreaterThanOrEqual(maxCounters);
  expect(await flood.counters()).toBeLessThanOrEqual(replicas.apps.length * maxOfProcess);
  expect(results.every(({ passed }) => passed)).toBe(true);
  expect(results.filter(({ perProcess }) => !perProcess)).toHaveLength(await flood.counters());
  expect(results.at(-1)).toMatchObject({ perProcess: true });

  // Its counters in Redis are still shared by the replicas, and are exact.
  const again = async (replica: 0 | 1) => (await flood.use(replica, identifiersOf(0)))[0];
  expect(await again(1)).not.toMatchObject({ perProcess: true });
  expect(await again(0)).toMatchObject({ passed: false });

  const use = { namespace: "x", identifier: "0 0", limit: 1, duration: tenMinutes };
  expect(await replicas.call(0, "limit", use)).toMatchObject({ success: true });
  expect(await replicas.call(1, "limit", use)).toMatchObject({ success: false });
});
