import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { type Fields, openUnchecked } from "../../support/clients/unchecked.js";
import { redisAt } from "../../support/harness.js";
import type { OperationName } from "../../support/operations.js";
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

describe("a workspace beyond its quota", () => {
  const max = 10;
  const use = (identifier: string, limit = max, cost = 1) => {
    return { namespace: "y", identifier, limit, cost, duration: tenMinutes };
  };
  let fresh = 0;
  const freshUse = () => use(`fresh ${fresh++}`);

  interface Checked {
    readonly passed: boolean;
    readonly limits: readonly (LimitResult & { readonly remaining: number })[];
  }

  /** Another workspace, with clients of both replicas over both protocols in turn. */
  async function openWorkspace() {
    const { key } = await createWorkspace(replicas.apps[0].httpUrl);
    const clients = (["gRPC by connect-node", "HTTP"] as const).map((kind) =>
      replicas.apps.map((app) => openUnchecked(kind, app)),
    );
    afterAll(() => clients.flat().forEach((client) => void client.close()));
    let calls = 0;
    async function call<T>(replica: 0 | 1, operation: OperationName, request: Fields): Promise<T> {
      const outcome = await clients[calls++ % clients.length]?.[replica]?.call(operation, key, request);
      return outcome?.kind === "success" ? (outcome.data as T) : expect.fail(JSON.stringify(outcome));
    }
    const check = (replica: 0 | 1, ...limits: readonly ReturnType<typeof use>[]) =>
      call<Checked>(replica, "multiLimit", { limits });
    return {
      call,
      check,
      /** Begins windows until neither replica may begin more in Redis. */
      async reachQuota() {
        for (const replica of [0, 1] as const) {
          const isReached = async () => {
            const { limits } = await check(replica, ...Array.from({ length: identifiersOfCall }, freshUse));
            return limits.at(-1)?.perProcess;
          };
          await expect.poll(isReached, { interval: 0, timeout: 10_000 }).toBe(true);
        }
      },
      /** How many of the checks pass, on both replicas at once. */
      async passing(checks: number, usesOf: () => readonly ReturnType<typeof use>[]) {
        const results = await Promise.all(
          Array.from({ length: checks }, (_, index) => check(index % 2 === 0 ? 0 : 1, ...usesOf())),
        );
        return results.filter(({ passed }) => passed).length;
      },
    };
  }

  it("has exact open windows in Redis, also in checks that need further windows", async () => {
    const workspace = await openWorkspace();
    expect(await workspace.check(0, use("user"))).toMatchObject({ passed: true });
    await workspace.reachQuota();
    expect(await workspace.check(1, freshUse(), use("user"))).toMatchObject({
      passed: true,
      limits: [
        { remaining: max - 1, perProcess: true },
        { remaining: max - 2, perProcess: true },
      ],
    });
    expect(await workspace.passing(4, () => [use("user"), freshUse()])).toBe(4);
    expect(await workspace.passing(40, () => [use("user"), freshUse()])).toBe(max - 6);
    expect(await workspace.passing(10, () => [use("user")])).toBe(0);
  });

  it("counts none of the limits of a check that one of them refuses", async () => {
    const workspace = await openWorkspace();
    const left = async () => (await workspace.check(0, use("user", max, 0))).limits[0]?.remaining;
    await workspace.check(0, use("user"));
    await workspace.reachQuota();

    // A window of this process refuses.
    expect(await workspace.check(0, use("once", 1))).toMatchObject({ passed: true, limits: [{ perProcess: true }] });
    for (let times = 0; times < max; times++) {
      expect(await workspace.check(0, use("user"), use("once", 1))).toMatchObject({
        passed: false,
        limits: [
          { passed: true, remaining: max - 1 },
          { passed: false, remaining: 0 },
        ],
      });
    }
    expect(await left()).toBe(max - 1);

    // A window in Redis refuses some of many at once, of which this process has then counted others.
    const checks = Array.from({ length: 4 * max }, () => workspace.check(0, use("user"), use("many", 4 * max)));
    expect((await Promise.all(checks)).filter(({ passed }) => passed)).toHaveLength(max - 1);
    expect(await left()).toBe(0);
    expect(await workspace.check(0, use("many", 4 * max))).toMatchObject({ limits: [{ remaining: 4 * max - max }] });
  });

  it("has keys with exact limits, also if verifications define further ones", async () => {
    const workspace = await openWorkspace();
    const { key } = await workspace.call<{ key: string }>(0, "createKey", {
      ratelimits: [{ name: "requests", limit: max, duration: tenMinutes, autoApply: true }],
    });
    const verify = async (replica: 0 | 1, ratelimits: readonly object[] = []) =>
      (await workspace.call<{ code: string }>(replica, "verifyKey", { key, ratelimits })).code;
    expect(await verify(0)).toBe("VALID");
    await workspace.reachQuota();
    const codes = await Promise.all(
      Array.from({ length: 4 * max }, (_, index) =>
        verify(index % 2 === 0 ? 0 : 1, [{ name: `further ${index}`, limit: max, duration: tenMinutes }]),
      ),
    );
    expect(codes.filter((code) => code === "VALID")).toHaveLength(max - 1);
    expect(await verify(1)).toBe("RATE_LIMITED");
  });
});
