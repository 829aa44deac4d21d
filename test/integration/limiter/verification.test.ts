import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { addressOf } from "../../support/backend-address.js";
import { readMetric } from "../../support/metrics.js";
import { openTwoReplicas, type TwoReplicas, tenMinutes } from "./two-replicas.js";

let replicas: TwoReplicas;

beforeAll(async () => {
  replicas = await openTwoReplicas();
});
afterAll(() => replicas.close());

const automatic = { duration: tenMinutes, autoApply: true };
const createKey = (request: object) => replicas.call(0, "createKey", { ...request });
const createIdentity = (request: object) => replicas.call(0, "createIdentity", { ...request });

/** Verifies a key many times at once, on both replicas in turn, and counts the codes. */
async function verifyMany(times: number, ...secrets: readonly string[]): Promise<Record<string, number>> {
  const results = await Promise.all(
    Array.from({ length: times }, (_, index) => {
      const secret = secrets[Math.floor(index / 2) % secrets.length] as string;
      return replicas.verify(index % 2 === 0 ? 0 : 1, secret);
    }),
  );
  const codes: Record<string, number> = {};
  for (const { code } of results) codes[code] = (codes[code] ?? 0) + 1;
  return codes;
}

/** What is left of each limit, by its name, without using any of it. */
async function remaining(secret: string, ...names: readonly string[]): Promise<Record<string, number>> {
  const { ratelimits } = await replicas.verify(1, secret, { ratelimits: names.map((name) => ({ name, cost: 0 })) });
  return Object.fromEntries(ratelimits.map((limit) => [limit.name, limit.remaining]));
}

describe("the rate limits of a verification", () => {
  it("of concurrent verifications on two replicas, exactly as many are VALID as the limit allows", async () => {
    const { key } = await createKey({ ratelimits: [{ name: "requests", limit: 37, ...automatic }] });
    expect(await verifyMany(120, key)).toEqual({ VALID: 37, RATE_LIMITED: 83 });
  });

  it("in each window anew", async () => {
    const { key } = await createKey({ ratelimits: [{ name: "requests", limit: 5, duration: 1_500, autoApply: true }] });
    const refused = await (async () => {
      for (;;) {
        const result = await replicas.verify(0, key);
        if (!result.valid) return result;
      }
    })();
    const { reset } = refused.ratelimits[0] ?? { reset: Number.NaN };
    await sleep(Math.max(0, reset - Date.now()) + 5); // timers may fire a moment early
    expect(await replicas.verify(1, key)).toMatchObject({ code: "VALID", ratelimits: [{ remaining: 4 }] });
  });

  it("the limits of an identity are shared by its keys", async () => {
    const { identityId } = await createIdentity({
      externalId: "shared",
      ratelimits: [{ name: "requests", limit: 20, ...automatic }],
    });
    const keys = [await createKey({ identityId }), await createKey({ identityId }), await createKey({ identityId })];
    const [one = "", two = "", three = ""] = keys.map(({ key }) => key);
    expect(await verifyMany(60, one, two, three)).toEqual({ VALID: 20, RATE_LIMITED: 40 });
  });

  it("limits of the key and of its identity apply together: the smaller one decides", async () => {
    const { identityId } = await createIdentity({
      externalId: "together",
      ratelimits: [{ name: "of identity", limit: 10, ...automatic }],
    });
    const { key } = await createKey({ identityId, ratelimits: [{ name: "of key", limit: 4, ...automatic }] });
    expect(await verifyMany(12, key)).toEqual({ VALID: 4, RATE_LIMITED: 8 });
    const result = await replicas.verify(0, key);
    expect(result.ratelimits).toMatchObject([
      { name: "of identity", exceeded: false, remaining: 6, limit: 10 },
      { name: "of key", exceeded: true, remaining: 0, limit: 4 },
    ]);
  });

  it("a verification that one limit refuses is counted against none", async () => {
    const { key } = await createKey({
      ratelimits: [
        { name: "large", limit: 100, ...automatic },
        { name: "small", limit: 2, ...automatic },
      ],
    });
    expect(await verifyMany(30, key)).toEqual({ VALID: 2, RATE_LIMITED: 28 });
    expect(await remaining(key, "large", "small")).toEqual({ large: 98, small: 0 });
  });

  it("a request names limits that do not apply automatically, with a cost", async () => {
    const { key } = await createKey({ ratelimits: [{ name: "tokens", limit: 100, duration: tenMinutes }] });
    expect(await replicas.verify(0, key)).toMatchObject({ code: "VALID", ratelimits: [] });
    const tokens = (cost: number) => ({ ratelimits: [{ name: "tokens", cost }] });
    expect(await replicas.verify(0, key, tokens(70))).toMatchObject({ ratelimits: [{ remaining: 30 }] });
    expect(await replicas.verify(1, key, tokens(31))).toMatchObject({
      code: "RATE_LIMITED",
      ratelimits: [{ exceeded: true, remaining: 30 }],
    });
    expect(await replicas.verify(1, key, tokens(30))).toMatchObject({ code: "VALID", ratelimits: [{ remaining: 0 }] });
    expect(await replicas.verify(1, key, tokens(0))).toMatchObject({ code: "VALID", ratelimits: [{ remaining: 0 }] });
    expect(await replicas.verify(1, key, tokens(101))).toMatchObject({ code: "RATE_LIMITED" });
  });

  it("a limit of a request needs no setting, and counts for the key on all replicas", async () => {
    const { key } = await createKey({});
    const { key: other } = await createKey({});
    const request = { ratelimits: [{ name: "inline", limit: 2, duration: tenMinutes }] };
    expect(await replicas.verify(0, key, request)).toMatchObject({ ratelimits: [{ id: "inline", remaining: 1 }] });
    expect(await replicas.verify(1, key, request)).toMatchObject({ code: "VALID", ratelimits: [{ remaining: 0 }] });
    expect(await replicas.verify(0, key, request)).toMatchObject({ code: "RATE_LIMITED" });
    expect(await replicas.verify(0, other, request)).toMatchObject({ code: "VALID" });
  });
});

describe("a changed rate limit holds on every replica from the moment its change has returned", () => {
  const both = (secret: string) => Promise.all([replicas.verify(0, secret), replicas.verify(1, secret)]);
  const codes = async (secret: string) => (await both(secret)).map(({ code }) => code);

  it.each([3, 2, 1])("of a key, round %i", async () => {
    const limited = (limit: number) => ({ ratelimits: [{ name: "requests", limit, ...automatic }] });
    const { keyId, key } = await createKey(limited(4));
    expect(await codes(key)).toEqual(["VALID", "VALID"]);
    await replicas.call(0, "updateKey", { keyId, ...limited(2) });
    expect(await codes(key)).toEqual(["RATE_LIMITED", "RATE_LIMITED"]);
    await replicas.call(1, "updateKey", { keyId, ...limited(4) });
    expect(await codes(key), "the remembered refusals are forgotten").toEqual(["VALID", "VALID"]);
    expect(await codes(key)).toEqual(["RATE_LIMITED", "RATE_LIMITED"]);
    await replicas.call(0, "updateKey", { keyId, ratelimits: [] });
    expect(await codes(key)).toEqual(["VALID", "VALID"]);
    await replicas.call(0, "updateKey", { keyId, ...limited(5) });
    expect(await both(key), "the counter is kept").toMatchObject([{ ratelimits: [{ limit: 5 }] }, {}]);
  });

  it("of an identity", async () => {
    const limited = (limit: number) => ({ ratelimits: [{ name: "requests", limit, ...automatic }] });
    const { identityId } = await createIdentity({ externalId: `changed ${Math.random()}`, ...limited(100) });
    const { key } = await createKey({ identityId });
    expect(await codes(key)).toEqual(["VALID", "VALID"]);
    await replicas.call(1, "updateIdentity", { identityId, ...limited(1) });
    expect(await codes(key)).toEqual(["RATE_LIMITED", "RATE_LIMITED"]);
    await replicas.call(0, "deleteIdentity", { identityId });
    expect(await codes(key)).toEqual(["VALID", "VALID"]);
  });
});

describe("Redis commands", () => {
  /** The commands of clients, without those of scripts, that mention one of these texts. */
  async function commandsDuring(texts: readonly string[], work: () => Promise<unknown>): Promise<string[]> {
    // Without ioredis, whose monitor fails if another client is faster than its own handshake.
    const monitor = connect(addressOf(inject("redisUrl")));
    onTestFinished(() => void monitor.destroy());
    let received = "";
    monitor.setEncoding("utf8").on("data", (text) => {
      received += text;
    });
    const seen = (text: string) => expect.poll(() => received, { timeout: 10_000 }).toContain(text);
    monitor.write("MONITOR\r\n");
    await seen("+OK\r\n");
    await work();
    const end = `end of the test ${Math.random()}`;
    monitor.write(`ECHO "${end}"\r\n`);
    await seen(end);
    const ofClients = received.split("\r\n").filter((line) => !/^\S+ \[\d+ lua\]/.test(line));
    return ofClients.filter((line) => texts.some((text) => line.includes(text)));
  }

  it("a verification with several limits is one, and a further one is refused without any", async () => {
    const { identityId } = await createIdentity({
      externalId: "commands",
      ratelimits: [{ name: "of identity", limit: 100, ...automatic }],
    });
    const settings = { identityId, ratelimits: [{ name: "of key", limit: 2, ...automatic }] };
    const { keyId, key } = await createKey(settings);
    await replicas.verify(0, key); // caches the key, and loads the script
    const ids = [keyId, identityId];
    expect(await commandsDuring(ids, () => replicas.verify(0, key))).toHaveLength(1);
    const refusals = await commandsDuring(ids, async () => {
      for (let times = 0; times < 5; times++) {
        expect(await replicas.verify(0, key)).toMatchObject({ code: "RATE_LIMITED" });
      }
    });
    expect(refusals).toHaveLength(1);
  });

  it("there are none for a cached key without limits, nor for its identity without limits", async () => {
    const { identityId } = await createIdentity({ externalId: "no commands" });
    const { keyId, key } = await createKey({ identityId, ratelimits: [{ name: "manual", limit: 1, duration: 1_000 }] });
    await replicas.verify(0, key);
    const counted = await readMetric(replicas.apps[0], "rate_limit_checks_total");
    const commands = await commandsDuring([keyId, identityId], async () => {
      for (let times = 0; times < 5; times++) expect(await replicas.verify(0, key)).toMatchObject({ code: "VALID" });
    });
    expect(commands).toEqual([]);
    expect(await readMetric(replicas.apps[0], "rate_limit_checks_total")).toBe(counted);
  });
});

it("checks are counted in a metric", async () => {
  const { key } = await createKey({ ratelimits: [{ name: "requests", limit: 1, ...automatic }] });
  const read = (result: string) => readMetric(replicas.apps[0], "rate_limit_checks_total", { scope: "shared", result });
  const before = { passed: await read("passed"), exceeded: await read("exceeded") };
  for (let times = 0; times < 3; times++) await replicas.verify(0, key);
  expect(await read("passed")).toBe(before.passed + 1);
  expect(await read("exceeded")).toBe(before.exceeded + 2);
});
