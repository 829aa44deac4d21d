import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { project } from "../../../commands/project.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openUnchecked } from "../../support/clients/unchecked.js";
import { redisAt } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";
import { type RedisServer, startRedis } from "../../verification/faults/redis-server.js";
import { openTwoReplicas, type TwoReplicas, tenMinutes } from "./two-replicas.js";

let server: RedisServer;
let replicas: TwoReplicas;

beforeAll(async () => {
  server = await startRedis();
  replicas = await openTwoReplicas({ redis: redisAt(server.url) });
});
afterAll(async () => {
  await replicas?.close();
  await server?.kill();
});

const max = 5;
const users = Array.from({ length: 20 }, (_, user) => `user ${user}`);

/** Uses the limit once for each user, and returns how many uses passed without `perProcess`. */
async function useOnce(replica: 0 | 1, namespace: string): Promise<number> {
  const use = (identifier: string) => ({ namespace, identifier, limit: max, duration: tenMinutes });
  const results = await Promise.all(users.map((user) => replicas.call(replica, "limit", use(user))));
  return results.filter(({ success, perProcess }) => success && !perProcess).length;
}

/** Another workspace uses 50 new identifiers. Returns whether Redis has counted them. */
async function openFlood(): Promise<() => Promise<boolean>> {
  const { key } = await createWorkspace(replicas.apps[0].httpUrl);
  const client = openUnchecked("gRPC by connect-node", replicas.apps[0]);
  afterAll(() => client.close());
  return async () => {
    const fresh = () => ({ namespace: "flood", identifier: `${Math.random()}`, limit: 1, duration: tenMinutes });
    const outcome = await client.call("multiLimit", key, { limits: Array.from({ length: 50 }, fresh) });
    if (outcome.kind !== "success") expect.fail(JSON.stringify(outcome));
    return !(outcome.data as { limits: { perProcess?: boolean }[] }).limits[0]?.perProcess;
  };
}

/** The policy of the Redis in the Compose file. */
function shippedPolicy(): string {
  const compose = readFileSync(join(project, "deploy/compose/compose.yaml"), "utf8");
  return /--maxmemory-policy, ([\w-]+)/.exec(compose)?.[1] ?? expect.fail("the Compose file sets no policy");
}

async function usedBytes(): Promise<number> {
  return Number(/used_memory:(\d+)/.exec(await server.admin.info("memory"))?.[1]);
}

it("a full Redis forgets no counter: above the limit, no use passes without perProcess", {
  timeout: 60_000,
}, async () => {
  const flood = await openFlood();
  const replicaOf = (times: number) => (times % 2 === 0 ? 0 : 1);
  for (let times = 0; times < max; times++) expect(await useOnce(replicaOf(times), "used up")).toBe(users.length);
  let passed = 0;
  for (let times = 0; times < 3; times++) passed += await useOnce(replicaOf(times), "in use");
  expect(passed).toBe(3 * users.length);

  await server.admin.config("SET", "maxmemory-policy", shippedPolicy());
  await server.admin.config("SET", "maxmemory", (await usedBytes()) + 1_000_000);
  for (let calls = 0; calls < 400 && (await flood()); calls++);

  for (const replica of [0, 1] as const) {
    expect(await useOnce(replica, "used up")).toBe(0);
    for (let times = 0; times < max; times++) passed += await useOnce(replica, "in use");
    expect(await readMetric(replicas.apps[replica], "redis_in_use")).toBe(1);
  }
  await server.admin.config("SET", "maxmemory", "0");
  await expect.poll(flood, { timeout: 10_000 }).toBe(true);
  for (const replica of [0, 1] as const) {
    expect(await useOnce(replica, "used up")).toBe(0);
    for (let times = 0; times < max; times++) passed += await useOnce(replica, "in use");
  }
  expect(passed).toBeLessThanOrEqual(max * users.length);
});
