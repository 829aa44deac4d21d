import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import { createWorkspace, expectFailure, expectSuccess } from "../gateway/http.js";
import { openTestApp, type TestApp } from "../harness.js";
import { disable, enable, listKeys, listKeysGrpc, redisInUse } from "./calls.js";

let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(() => redis.disconnect());

const entryOf = (workspaceId: string) => `latchkey:ws:${workspaceId}`;

describe("with a working Redis, seen from the front door", () => {
  let app: TestApp;
  let workspaceId: string;
  let key: string;

  beforeAll(async () => {
    app = await openTestApp();
    await redisInUse(app);
  });
  afterAll(() => app.close());
  beforeEach(async () => {
    ({ workspaceId, key } = await createWorkspace(app.httpUrl));
  });

  /** Calls until Redis holds such an entry: at the start, and on a busy machine, a write to it may be given up. */
  async function expectEntry(form: RegExp): Promise<string> {
    const entry = async () => {
      await listKeys(app, key);
      return redis.get(entryOf(workspaceId));
    };
    await expect.poll(entry, { timeout: 10_000 }).toMatch(form);
    return (await redis.get(entryOf(workspaceId))) ?? "";
  }
  const readThrough = () => expectEntry(/\.enabled@\d+$/);

  const expectRefused = async () => {
    expectFailure(await listKeys(app, key), 403, "authorization/workspace_disabled");
    expect(await listKeysGrpc(app, key)).toBe("PERMISSION_DENIED");
  };
  const expectServed = async () => {
    expectSuccess(await listKeys(app, key));
    expect(await listKeysGrpc(app, key)).toBe("OK");
  };

  it("a call leaves the state of its workspace in Redis", async () => {
    await readThrough();
  });

  it("after a disable and after an enable the new state is there", async () => {
    await readThrough();
    await disable(app, workspaceId);
    await expectEntry(/\.disabled@\d+$/);
    await enable(app, workspaceId);
    await expectEntry(/\.enabled@\d+$/);
  });

  it("an old entry that comes back after a disable does not revive the workspace", async () => {
    const old = await readThrough();
    await disable(app, workspaceId);
    await redis.set(entryOf(workspaceId), old);
    await expectRefused();
  });

  it("an old entry that comes back after an enable does not refuse the workspace", async () => {
    await readThrough();
    await disable(app, workspaceId);
    const old = await expectEntry(/\.disabled@\d+$/);
    await enable(app, workspaceId);
    await redis.set(entryOf(workspaceId), old);
    await expectServed();
  });

  it("an entry from a future that Postgres has not reached is not believed", async () => {
    await readThrough();
    await disable(app, workspaceId);
    await redis.set(entryOf(workspaceId), "enabled@999999999999999999");
    await expectRefused();
  });

  it("entries that are lost are read again from Postgres", async () => {
    await readThrough();
    await redis.del(entryOf(workspaceId));
    await expectServed();
    await disable(app, workspaceId);
    await redis.del(entryOf(workspaceId));
    await expectRefused();
    await enable(app, workspaceId);
    await redis.del(entryOf(workspaceId));
    await expectServed();
  });

  it.each([
    ["nothing", ""],
    ["no epoch", "enabled"],
    ["an empty epoch", "enabled@"],
    ["a negative epoch", "enabled@-1"],
    ["a fraction", "enabled@1.5"],
    ["an exponent", "enabled@1e9"],
    ["hexadecimal", "enabled@0x7fffffff"],
    ["an epoch beyond 64 bits", "enabled@99999999999999999999"],
    ["a space before", " enabled@999999"],
    ["a line break after", "enabled@999999\n"],
    ["capitals", "ENABLED@999999"],
    ["another word", "true"],
    ["JSON", '{"enabled":true,"epoch":999999}'],
    ["two entries", "enabled@999999 disabled@999999"],
    ["binary", "\0\xff"],
    ["a megabyte", "x".repeat(1_000_000)],
  ])("an odd entry is no entry: %s", async (_what, odd) => {
    await readThrough();
    await redis.set(entryOf(workspaceId), odd);
    await expectServed();
    await disable(app, workspaceId);
    await redis.set(entryOf(workspaceId), odd);
    await expectRefused();
  });

  it("an entry of the wrong type is no entry, and is replaced", async () => {
    await readThrough();
    await disable(app, workspaceId);
    await redis.del(entryOf(workspaceId));
    await redis.rpush(entryOf(workspaceId), "enabled@999999");
    await expectRefused();
    await expect
      .poll(
        async () => {
          await expectRefused();
          return redis.type(entryOf(workspaceId));
        },
        { timeout: 10_000 },
      )
      .toBe("string");
    await redis.del(entryOf(workspaceId));
    await redis.hset(entryOf(workspaceId), "enabled", "999999");
    await expectRefused();
  });
});
