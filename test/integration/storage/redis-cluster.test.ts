import { describe, expect, it, onTestFinished } from "vitest";
import { createWorkspace, expectSuccess, send } from "../../support/clients/http-requests.js";
import { disable, enable, redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { callBoth, outcomes, readLookups } from "../../support/redis-entries.js";
import { findServer, type RedisNode, startCluster } from "../../support/redis-nodes.js";

/** Enough that each node has entries of some, so that the loss of a node has an effect. */
const workspaceCount = 12;

interface Workspace {
  readonly workspaceId: string;
  readonly key: string;
}

describe("a Redis cluster", () => {
  it("is used on all its nodes, whichever of them was configured", { timeout: 60_000 }, async (context) => {
    const nodes = await startCluster(findServer(context), 3);
    const app = await openOn(nodes.slice(0, 1));
    const other = await openOn(nodes.slice(2), app.databaseUrl);
    // Repeats until each node has had a cache hit: on a busy machine some reads and writes time out.
    const nodesWithHits = async () => {
      const { key } = await createWorkspace(app.httpUrl);
      for (const replica of [app, other]) expect(await callBoth([replica, replica], key)).toEqual(outcomes.served);
      const stats = await Promise.all(nodes.map(({ redis }) => redis.info("stats")));
      return stats.filter((text) => /keyspace_hits:[1-9]/.test(text)).length;
    };
    await expect.poll(nodesWithHits, { timeout: 15_000, interval: 1 }).toBe(nodes.length);
    expect((await readLookups(other))["key redis"]).toBeGreaterThanOrEqual(nodes.length);
  });

  it("that loses a node with its slots does not delay revocation", { timeout: 60_000 }, async (context) => {
    const nodes = await startCluster(findServer(context), 3);
    const app = await openOn(nodes);
    const replicas = [app, await openOn(nodes, app.databaseUrl)] as const;
    const workspaces = await createWorkspaces(app);
    const [one, killed, third] = nodes;
    await killed?.kill();
    await expectImmediateRevocation(replicas, workspaces);
    // By default, the remaining nodes now refuse all commands.
    const state = async () => String(await one?.redis.call("CLUSTER", "INFO"));
    await expect.poll(state, { timeout: 10_000 }).toContain("cluster_state:fail");
    await expectImmediateRevocation(replicas, workspaces);

    for (const node of [one, third]) await node?.redis.config("SET", "cluster-require-full-coverage", "no");
    await expect.poll(state, { timeout: 10_000 }).toMatch(/cluster_state:ok[\s\S]*cluster_slots_fail:[1-9]/);
    for (const replica of replicas) await redisInUse(replica);
    await expectImmediateRevocation(replicas, workspaces);
  });
});

/** Starts a replica that is configured with these nodes. */
async function openOn(nodes: readonly RedisNode[], databaseUrl?: string): Promise<TestApp> {
  const redis = { urls: nodes.map(({ url }) => url), cluster: true };
  const app = await openTestApp({ redis, metricsPort: 0, ...(databaseUrl && { databaseUrl }) });
  onTestFinished(() => app.close());
  await redisInUse(app);
  return app;
}

async function createWorkspaces(app: TestApp): Promise<Workspace[]> {
  const workspaces: Workspace[] = [];
  await inGroups(Array.from({ length: workspaceCount }), async () => {
    const workspace = await createWorkspace(app.httpUrl);
    expect(await callBoth([app, app], workspace.key)).toEqual(outcomes.served);
    workspaces.push(workspace);
  });
  return workspaces;
}

/**
 * Runs a step for each element, three at a time: an operator has three connections to PostgreSQL. More changes at once
 * would wait for one, and on a busy machine some of them would be shed.
 */
async function inGroups<T>(elements: readonly T[], step: (element: T) => Promise<void>): Promise<void> {
  for (let first = 0; first < elements.length; first += 3) {
    await Promise.all(elements.slice(first, first + 3).map(step));
  }
}

/** Disables the workspaces on one replica, enables them on the other, and calls both after each change. */
async function expectImmediateRevocation(
  replicas: readonly [TestApp, TestApp],
  workspaces: readonly Workspace[],
): Promise<void> {
  const [one, other] = replicas;
  await inGroups(workspaces, async ({ workspaceId, key }) => {
    await disable(one, workspaceId);
    expect(await callBoth(replicas, key)).toEqual(outcomes.workspaceDisabled);
    await enable(other, workspaceId);
    expect(await callBoth(replicas, key)).toEqual(outcomes.served);
  });
  const { key } = await createWorkspace(one.httpUrl);
  expect(await callBoth(replicas, key)).toEqual(outcomes.served);
  for (const { httpUrl } of replicas) {
    expect(expectSuccess(await send(httpUrl, "/readyz", { method: "GET" }))).toMatchObject({ status: "ready" });
  }
}
