import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { listEvents } from "../../support/calls.js";
import { readMetric } from "../../support/metrics.js";
import { openTwoReplicas, type TwoReplicas, tenMinutes } from "./two-replicas.js";

let replicas: TwoReplicas;
let namespace: string;

beforeAll(async () => {
  replicas = await openTwoReplicas();
});
afterAll(() => replicas.close());
beforeEach(() => {
  namespace = `namespace ${Math.random()}`;
});

const use = (identifier: string, more: object = {}) => {
  return { namespace, identifier, limit: 10, duration: tenMinutes, ...more };
};
const limit = (replica: 0 | 1, identifier: string, more: object = {}) =>
  replicas.call(replica, "limit", use(identifier, more));
const limitOnBoth = (identifier: string) => Promise.all([limit(0, identifier), limit(1, identifier)]);
const setOverride = (replica: 0 | 1, identifier: string, max: number, duration = tenMinutes) =>
  replicas.call(replica, "setOverride", { namespace, identifier, limit: max, duration });

describe("the stand-alone limiter", () => {
  it("admits exactly as many concurrent uses as the limit allows, on all replicas", async () => {
    const uses = Array.from({ length: 100 }, (_, index) => limit(index % 2 === 0 ? 0 : 1, "user"));
    const admitted = (await Promise.all(uses)).filter(({ success }) => success);
    expect(admitted).toHaveLength(10);
    expect(admitted.map(({ remaining }) => remaining).sort((one, other) => one - other)).toEqual([...Array(10).keys()]);
  });

  it("counts several limits together, or none of them", async () => {
    const limits = [use("a", { limit: 2 }), use("b", { cost: 3 }), use("c", { cost: 0 })];
    const multi = (replica: 0 | 1) => replicas.call(replica, "multiLimit", { limits });
    expect(await multi(0)).toMatchObject({
      passed: true,
      limits: [{ remaining: 1 }, { remaining: 7 }, { remaining: 10 }],
    });
    expect(await multi(1)).toMatchObject({ passed: true, limits: [{ remaining: 0 }, { remaining: 4 }, {}] });
    for (const replica of [0, 1] as const) {
      expect(await multi(replica)).toMatchObject({
        passed: false,
        limits: [
          { identifier: "a", passed: false, remaining: 0 },
          { identifier: "b", passed: true, remaining: 4 },
          { identifier: "c", passed: true, remaining: 10 },
        ],
      });
    }
    expect(await limit(0, "b")).toMatchObject({ success: true, remaining: 3 });
  });

  it("counts namespaces, identifiers and durations separately", async () => {
    await limit(0, "a");
    expect(await limit(1, "b")).toMatchObject({ remaining: 9 });
    expect(await limit(1, "a", { namespace: `${namespace} other` })).toMatchObject({ remaining: 9 });
    expect(await limit(1, "a", { duration: tenMinutes + 1 })).toMatchObject({ remaining: 9 });
    expect(await limit(1, "a")).toMatchObject({ remaining: 8 });
  });

  it("does not confuse a namespace and an identifier that contain each other's text", async () => {
    await replicas.call(0, "limit", { ...use("b:c"), namespace: `${namespace}:a` });
    const other = await replicas.call(0, "limit", { ...use("c"), namespace: `${namespace}:a:b` });
    expect(other).toMatchObject({ remaining: 9 });
  });
});

describe("overrides", () => {
  it("hold on every replica from the moment they were set, changed and deleted", async () => {
    for (let round = 0; round < 3; round++) {
      const user = `user ${round}`;
      expect(await limitOnBoth(user)).toMatchObject([{ limit: 10 }, { limit: 10 }]);
      const { overrideId } = await setOverride(0, user, 100);
      expect(await limitOnBoth(user)).toMatchObject([
        { limit: 100, overrideId },
        { limit: 100, overrideId },
      ]);
      const changed = await setOverride(1, user, 3);
      expect(changed).toEqual({ overrideId });
      expect(await limitOnBoth(user)).toMatchObject([
        { limit: 3, success: false, overrideId },
        { limit: 3, success: false, overrideId },
      ]);
      await replicas.call(0, "deleteOverride", { namespace, identifier: user });
      const without = await limitOnBoth(user);
      expect(without).toMatchObject([
        { limit: 10, success: true },
        { limit: 10, success: true },
      ]);
      expect(without.map((result) => "overrideId" in result)).toEqual([false, false]);
    }
  });

  it.each([0, 1])("with a limit of 0 refuse every use, also one with a cost of %i", async (cost) => {
    await setOverride(0, "banned", 0);
    for (const replica of [0, 1] as const) {
      const refused = { limit: 0, remaining: 0 };
      expect(await limit(replica, "banned", { cost })).toMatchObject({ success: false, ...refused });
      const limits = [use("other"), use("banned", { cost })];
      expect(await replicas.call(replica, "multiLimit", { limits })).toMatchObject({
        passed: false,
        limits: [
          { passed: true, remaining: 10 },
          { passed: false, ...refused },
        ],
      });
    }
  });

  it("replace the duration, too", async () => {
    await setOverride(0, "user", 5, 2 * tenMinutes);
    const { reset } = await limit(1, "user");
    expect(reset).toBeGreaterThan(Date.now() + tenMinutes);
  });

  it("with * apply to what they match, an exact one first, then the most specific one", async () => {
    await setOverride(0, "*", 1);
    await setOverride(1, "premium_*", 200);
    await setOverride(0, "premium_vip", 300);
    const limits = await Promise.all(["other", "premium_1", "premium_vip"].map((user) => limit(1, user)));
    expect(limits.map(({ limit }) => limit)).toEqual([1, 200, 300]);
    await replicas.call(1, "deleteOverride", { namespace, identifier: "premium_*" });
    expect(await limitOnBoth("premium_1")).toMatchObject([{ limit: 1 }, { limit: 1 }]);
  });

  it("hold for the limits of a call with several", async () => {
    await setOverride(0, "a*", 1);
    const multi = () => replicas.call(1, "multiLimit", { limits: [use("a1"), use("b1")] });
    expect(await multi()).toMatchObject({ passed: true, limits: [{ limit: 1 }, { limit: 10 }] });
    expect(await multi()).toMatchObject({ passed: false, limits: [{ passed: false }, { remaining: 9 }] });
  });

  it("cost a use no statement once their namespace is cached, also if there are none", async () => {
    await limit(0, "user");
    const statements = () => readMetric(replicas.apps[0], "lookups_total", { kind: "overrides", source: "postgres" });
    const before = await statements();
    for (let times = 0; times < 5; times++) await limit(0, `user ${times}`);
    await setOverride(0, "user", 5);
    await limit(0, "user");
    expect(await statements()).toBe(before + 1);
    await limit(0, "user");
    expect(await statements()).toBe(before + 1);
  });

  it("that are set at the same time exist once, with one create event", async () => {
    const sets = await Promise.all([1, 2, 3, 4, 5, 6].map((max, index) => setOverride(index % 2 ? 0 : 1, "user", max)));
    const [{ overrideId } = { overrideId: "" }] = sets;
    expect(new Set(sets.map((set) => set.overrideId)).size).toBe(1);
    const events = await listEvents(replicas.apps[0].httpUrl, replicas.key, { resourceId: overrideId });
    const types = events.map(({ type }) => type);
    expect(types.filter((type) => type === "override.create")).toHaveLength(1);
    expect(types.at(-1)).toBe("override.create");
    const { limit: max } = await replicas.call(0, "getOverride", { namespace, identifier: "user" });
    expect(events[0]?.after).toMatchObject({ namespace, identifier: "user", limit: max });
    for (const [index, { before }] of events.entries()) expect(before ?? undefined).toEqual(events[index + 1]?.after);
  });

  it("that are changed by hand hold within a lease", async () => {
    const sql = openSql(replicas.apps[0].databaseUrl, { max: 1, onnotice: () => {} });
    onTestFinished(() => sql.end());
    await setOverride(0, "user", 100);
    expect(await limitOnBoth("user")).toMatchObject([{ limit: 100 }, { limit: 100 }]);
    const read = async () => (await limitOnBoth("user")).map((result) => result.limit);
    await sql`update rate_limit_overrides set "limit" = 50 where namespace = ${namespace}`;
    await expect.poll(read, { timeout: 5_000 }).toEqual([50, 50]);
    await sql`delete from rate_limit_overrides where namespace = ${namespace}`;
    await expect.poll(read, { timeout: 5_000 }).toEqual([10, 10]);
    await setOverride(0, "user", 100);
    expect(await limitOnBoth("user")).toMatchObject([{ limit: 100 }, { limit: 100 }]);
    await sql`truncate rate_limit_overrides`;
    await expect.poll(read, { timeout: 5_000 }).toEqual([10, 10]);
  });
});
