import { describe, expect } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import type { CallRequest } from "../support/clients/protocol-client.js";
import { findPartialChanges } from "../support/integrity.js";
import { openContract } from "./cases.js";
import { createFullKey, day, readSettings } from "./key-settings.js";
import type { Scene } from "./scene.js";

const contract = openContract();
const { everyProtocol, someProtocols } = contract;
const invalid = "application/invalid_input";
const maximum = 1_000_000_000_000;
const daily = { interval: "daily", amount: 100 };
const monthly = { interval: "monthly", amount: 100, refillDay: 31 };

const createKey = ({ ok, home }: Scene, credits?: object, more: object = {}) =>
  ok("createKey", home.key, { ...(credits && { credits }), ...more });
const creditsOf = async ({ ok, home }: Scene, keyId: string) => (await ok("getKey", home.key, { keyId })).credits;
const update = ({ ok, home }: Scene, keyId: string, operation: string, value?: number) =>
  ok("updateCredits", home.key, { keyId, operation, ...(value !== undefined && { value }) });
const verify = ({ ok, home }: Scene, key: string, more: object = {}) => ok("verifyKey", home.key, { key, ...more });

/** The types and contents of the key's events about credits, oldest first. */
async function creditEvents({ page, home }: Scene, keyId: string) {
  const { data } = await page("listAuditEvents", home.key, { resourceId: keyId, type: "key.updateCredits" });
  return data.toReversed().map(({ before, after }) => ({ before, after }));
}

describe("a key that is created with credits", () => {
  for (const [what, credits, stored] of [
    ["without a refill", { remaining: 5 }, { remaining: 5 }],
    ["of 0", { remaining: 0 }, { remaining: 0 }],
    ["of the maximum", { remaining: maximum }, { remaining: maximum }],
    ["with a daily refill", { remaining: 5, refill: daily }, { remaining: 5, refill: daily }],
    ["with a monthly refill", { remaining: 5, refill: monthly }, { remaining: 5, refill: monthly }],
    [
      "with a monthly refill on the first day by default",
      { remaining: 5, refill: { interval: "monthly", amount: 1 } },
      { remaining: 5, refill: { interval: "monthly", amount: 1, refillDay: 1 } },
    ],
  ] as const) {
    everyProtocol(`${what} has them in every response`, async (scene) => {
      const { ok, home } = scene;
      const { key, keyId } = await createKey(scene, credits);
      expect(await creditsOf(scene, keyId)).toEqual(stored);
      expect((await ok("whoami", home.key, { key })).credits).toEqual(stored);
      const listed = await ok("listKeys", home.key);
      expect(listed.find((one) => one.keyId === keyId)?.credits).toEqual(stored);
      expect(await creditEvents(scene, keyId)).toEqual([{ before: undefined, after: stored }]);
    });
  }

  everyProtocol("is valid as often as it has credits, and a verification says how many are left", async (scene) => {
    const { key } = await createKey(scene, { remaining: 3 });
    expect(await verify(scene, key)).toMatchObject({ valid: true, credits: 2 });
    expect(await verify(scene, key, { credits: { cost: 3 } })).toMatchObject({ code: "USAGE_EXCEEDED", credits: 2 });
    expect(await verify(scene, key, { credits: { cost: 2 } })).toMatchObject({ valid: true, credits: 0 });
    expect(await verify(scene, key)).toMatchObject({ valid: false, code: "USAGE_EXCEEDED", credits: 0 });
  });

  everyProtocol("shows refilled credits when their time has come, before anything is spent", async (scene) => {
    const { keyId } = await createKey(scene, { remaining: 1, refill: daily });
    await scene.clock.advance(day);
    expect(await creditsOf(scene, keyId)).toEqual({ remaining: 100, refill: daily });
  });
});

describe("a key without credits", () => {
  everyProtocol("has none in any response", async (scene) => {
    const { key, keyId } = await createKey(scene);
    expect(await readSettings(scene, keyId)).not.toHaveProperty("credits");
    expect(await verify(scene, key, { credits: { cost: 9 } })).not.toHaveProperty("credits");
    expect(await creditEvents(scene, keyId)).toEqual([]);
  });

  everyProtocol("can be created with empty credits", async (scene) => {
    const { keyId } = await createKey(scene, {});
    expect(await readSettings(scene, keyId)).not.toHaveProperty("credits");
  });
});

describe("updateKey", () => {
  /** What the key has before, the change, and what it has afterwards; undefined for no credits. */
  const changes: Record<
    string,
    readonly [before: object | undefined, change: object | null, after: object | undefined]
  > = {
    "gives a key credits": [undefined, { remaining: 7 }, { remaining: 7 }],
    "gives a key credits with a refill": [undefined, { remaining: 7, refill: daily }, { remaining: 7, refill: daily }],
    "sets the credits and keeps the refill": [
      { remaining: 1, refill: daily },
      { remaining: 9 },
      { remaining: 9, refill: daily },
    ],
    "sets a refill and keeps the credits": [{ remaining: 1 }, { refill: monthly }, { remaining: 1, refill: monthly }],
    "replaces the refill": [{ remaining: 1, refill: daily }, { refill: monthly }, { remaining: 1, refill: monthly }],
    "ends the refills": [{ remaining: 1, refill: daily }, { refill: null }, { remaining: 1 }],
    "ends the refills and sets the credits": [
      { remaining: 1, refill: daily },
      { remaining: 4, refill: null },
      { remaining: 4 },
    ],
    "removes the credits": [{ remaining: 1, refill: daily }, null, undefined],
    "removes the credits by clearing `remaining`": [{ remaining: 1, refill: daily }, { remaining: null }, undefined],
    "removes the credits by clearing both": [
      { remaining: 1, refill: daily },
      { remaining: null, refill: null },
      undefined,
    ],
    "removes the credits of a key without any": [undefined, null, undefined],
    "ends the refills of a key without credits": [undefined, { refill: null }, undefined],
  };

  for (const [what, [before, change, after]] of Object.entries(changes)) {
    everyProtocol(`${what}; everything else stays`, async (scene) => {
      const { keyId, key } = await createFullKey(scene, before ? { credits: before } : {});
      const { credits: _, updatedAt: __, ...others } = await readSettings(scene, keyId);
      const updated = await scene.ok("updateKey", scene.home.key, { keyId, credits: change });
      expect(updated.credits).toEqual(after);
      expect(updated).toMatchObject(others);
      expect(await creditsOf(scene, keyId)).toEqual(after);
      const verified = await verify(scene, key);
      expect(verified.code).toBe("VALID");
      expect(verified.credits).toBe(after && (after as { remaining: number }).remaining - 1);
    });
  }

  everyProtocol("changes credits together with other fields, each with its event", async (scene) => {
    const { keyId } = await createKey(scene, { remaining: 1 });
    await scene.ok("updateKey", scene.home.key, { keyId, name: "other", credits: { remaining: 2 } });
    const { data } = await scene.page("listAuditEvents", scene.home.key, { resourceId: keyId });
    expect(data.map(({ type }) => type)).toEqual([
      "key.updateCredits",
      "key.update",
      "key.updateCredits",
      "key.create",
    ]);
    expect(new Set(data.slice(0, 2).map(({ requestId }) => requestId)).size).toBe(1);
  });

  everyProtocol("changes no credits if something else in the request does not exist", async (scene) => {
    const { keyId } = await createKey(scene, { remaining: 1 });
    const request = { keyId, credits: { remaining: 9 }, identityId: "id_00000000000000000000000000" };
    await scene.refused("data/identity_not_found", "updateKey", scene.home.key, request);
    await scene.refused("data/role_not_found", "updateKey", scene.home.key, {
      keyId,
      credits: { remaining: 9 },
      roles: ["x"],
    });
    expect(await creditsOf(scene, keyId)).toEqual({ remaining: 1 });
  });

  everyProtocol("refuses a refill for a key without credits: the error names `credits.remaining`", async (scene) => {
    const { keyId } = await createKey(scene);
    const { fields } = await scene.refused(invalid, "updateKey", scene.home.key, { keyId, credits: { refill: daily } });
    expect(fields?.map(({ location }) => location)).toEqual(["credits.remaining"]);
    expect(await readSettings(scene, keyId)).not.toHaveProperty("credits");
  });

  everyProtocol("refuses to set a refill and to remove the credits at once", async (scene) => {
    const { keyId } = await createKey(scene, { remaining: 1 });
    const request = { keyId, credits: { remaining: null, refill: daily } };
    const { fields } = await scene.refused(invalid, "updateKey", scene.home.key, request);
    expect(fields?.map(({ location }) => location)).toEqual(["credits.remaining"]);
    expect(await creditsOf(scene, keyId)).toEqual({ remaining: 1 });
  });

  everyProtocol("a changed refill starts with the next one after the change", async (scene) => {
    const { keyId } = await createKey(scene, { remaining: 1 });
    await scene.clock.advance(3 * day);
    await scene.ok("updateKey", scene.home.key, { keyId, credits: { refill: daily } });
    expect(await creditsOf(scene, keyId)).toEqual({ remaining: 1, refill: daily });
    await scene.clock.advance(day);
    expect(await creditsOf(scene, keyId)).toEqual({ remaining: 100, refill: daily });
  });
});

describe("updateCredits", () => {
  everyProtocol("sets, increments and decrements the credits, at once, and keeps the refill", async (scene) => {
    const { key, keyId } = await createKey(scene, { remaining: 1, refill: monthly });
    for (const [operation, value, remaining] of [
      ["increment", 4, 5],
      ["decrement", 2, 3],
      ["set", 10, 10],
      ["decrement", 11, 0],
      ["increment", 0, 0],
      ["set", maximum, maximum],
      ["increment", 5, maximum],
      ["decrement", maximum, 0],
    ] as const) {
      expect(await update(scene, keyId, operation, value)).toEqual({ remaining, refill: monthly });
      expect(await creditsOf(scene, keyId)).toEqual({ remaining, refill: monthly });
    }
    expect(await verify(scene, key)).toMatchObject({ code: "USAGE_EXCEEDED" });
    await update(scene, keyId, "increment", 2);
    expect(await verify(scene, key)).toMatchObject({ code: "VALID", credits: 1 });
  });

  everyProtocol(
    "without a value removes the credits and the refill: `remaining` is then null over HTTP",
    async (scene) => {
      const { key, keyId } = await createKey(scene, { remaining: 0, refill: daily });
      expect(await verify(scene, key)).toMatchObject({ code: "USAGE_EXCEEDED" });
      for (let attempt = 1; attempt <= 2; attempt++) {
        expect(await update(scene, keyId, "set")).toEqual({ remaining: null });
        expect(await readSettings(scene, keyId)).not.toHaveProperty("credits");
        expect(await verify(scene, key)).toMatchObject({ code: "VALID" });
      }
      expect(await update(scene, keyId, "set", 1)).toEqual({ remaining: 1 });
      expect(await verify(scene, key)).toMatchObject({ code: "VALID", credits: 0 });
      expect(await verify(scene, key)).toMatchObject({ code: "USAGE_EXCEEDED" });
    },
  );

  everyProtocol("applies a due refill first, so that it is not applied to the new number", async (scene) => {
    const { keyId } = await createKey(scene, { remaining: 1, refill: daily });
    await scene.clock.advance(day);
    expect(await update(scene, keyId, "increment", 5)).toEqual({ remaining: 105, refill: daily });
    await scene.clock.advance(day);
    expect(await update(scene, keyId, "set", 3)).toEqual({ remaining: 3, refill: daily });
    expect(await creditsOf(scene, keyId)).toEqual({ remaining: 3, refill: daily });
  });

  for (const operation of ["increment", "decrement"]) {
    everyProtocol(`cannot ${operation} what a key does not have: the error names \`operation\``, async (scene) => {
      const { keyId } = await createKey(scene);
      const request = { keyId, operation, value: 1 };
      const { fields } = await scene.refused(invalid, "updateCredits", scene.home.key, request);
      expect(fields?.map(({ location }) => location)).toEqual(["operation"]);
      expect(await readSettings(scene, keyId)).not.toHaveProperty("credits");
    });
  }

  everyProtocol("of a key that does not exist, was deleted or is of another workspace finds none", async (scene) => {
    const other = await scene.newWorkspace();
    const { keyId } = await createKey(scene, { remaining: 1 });
    const request = { keyId, operation: "set", value: 5 };
    await scene.refused("data/key_not_found", "updateCredits", other.key, request);
    await scene.ok("deleteKey", scene.home.key, { keyId });
    await scene.refused("data/key_not_found", "updateCredits", scene.home.key, request);
  });

  everyProtocol("needs every scope of the key that it changes", async (scene) => {
    const caller = await createKey(scene, undefined, { scopes: ["keys.update"] });
    const stronger = await createKey(scene, { remaining: 1 }, { scopes: ["keys.*"] });
    const request = { keyId: stronger.keyId, operation: "increment", value: 1 };
    await scene.refused("authorization/insufficient_permissions", "updateCredits", caller.key, request);
    expect(await creditsOf(scene, stronger.keyId)).toEqual({ remaining: 1 });
  });

  everyProtocol(
    "leaves one event for each change, with the credits before and after, and none for no change",
    async (scene) => {
      const { key, keyId } = await createKey(scene, { remaining: 5 });
      await verify(scene, key);
      await update(scene, keyId, "increment", 6);
      await update(scene, keyId, "increment", 0);
      await update(scene, keyId, "set", 10);
      await update(scene, keyId, "set");
      await update(scene, keyId, "set");
      expect(await creditEvents(scene, keyId)).toEqual([
        { before: undefined, after: { remaining: 5 } },
        { before: { remaining: 4 }, after: { remaining: 10 } },
        { before: { remaining: 10 }, after: undefined },
      ]);
    },
  );
});

describe("a rerolled key", () => {
  everyProtocol("passes on the credits that are left, with the refill", async (scene) => {
    const old = await createKey(scene, { remaining: 5, refill: monthly });
    await verify(scene, old.key);
    const { key, keyId } = await scene.ok("rerollKey", scene.home.key, { keyId: old.keyId });
    expect(await creditsOf(scene, keyId)).toEqual({ remaining: 4, refill: monthly });
    expect(await verify(scene, key)).toMatchObject({ code: "VALID", credits: 3 });
    expect(await creditsOf(scene, old.keyId)).toEqual({ remaining: 4, refill: monthly });
    expect(await creditEvents(scene, keyId)).toEqual([{ before: undefined, after: { remaining: 4, refill: monthly } }]);
  });

  everyProtocol("passes on that it needs none", async (scene) => {
    const old = await createKey(scene);
    const { keyId } = await scene.ok("rerollKey", scene.home.key, { keyId: old.keyId });
    expect(await readSettings(scene, keyId)).not.toHaveProperty("credits");
  });
});

describe("bad input is refused, names its field, and changes nothing:", () => {
  const badCredits: Record<string, readonly [credits: object, location: string]> = {
    "negative credits": [{ remaining: -1 }, "credits.remaining"],
    "too many credits": [{ remaining: maximum + 1 }, "credits.remaining"],
    "a refill of nothing": [{ remaining: 1, refill: { interval: "daily", amount: 0 } }, "credits.refill.amount"],
    "a refill of too many": [
      { remaining: 1, refill: { interval: "daily", amount: maximum + 1 } },
      "credits.refill.amount",
    ],
    "an unknown interval": [{ remaining: 1, refill: { interval: "weekly", amount: 1 } }, "credits.refill.interval"],
    "the day 0": [
      { remaining: 1, refill: { interval: "monthly", amount: 1, refillDay: 0 } },
      "credits.refill.refillDay",
    ],
    "the day 32": [
      { remaining: 1, refill: { interval: "monthly", amount: 1, refillDay: 32 } },
      "credits.refill.refillDay",
    ],
    "a day of a daily refill": [
      { remaining: 1, refill: { interval: "daily", amount: 1, refillDay: 1 } },
      "credits.refill",
    ],
  };

  /** The call must be refused and name the location. */
  async function expectRefused(
    scene: Scene,
    name: "createKey" | "updateKey" | "updateCredits" | "verifyKey",
    request: CallRequest,
    location: string,
  ) {
    const { fields } = await scene.refused(invalid, name, scene.home.key, request);
    expect(fields?.map((field) => field.location)).toContain(location);
  }

  for (const [what, [credits, location]] of Object.entries(badCredits)) {
    everyProtocol(what, async (scene) => {
      const { keyId } = await createKey(scene, { remaining: 3 });
      await expectRefused(scene, "createKey", { credits }, location);
      await expectRefused(scene, "updateKey", { keyId, credits }, location);
      expect(await creditsOf(scene, keyId)).toEqual({ remaining: 3 });
      expect(await scene.ok("listKeys", scene.home.key)).toHaveLength(2);
    });
  }

  everyProtocol("a refill without credits", (scene) =>
    expectRefused(scene, "createKey", { credits: { refill: daily } }, "credits"),
  );

  someProtocols(["http"], "fractional credits and costs", async (scene) => {
    const { key, keyId } = await createKey(scene, { remaining: 3 });
    await expectRefused(scene, "createKey", { credits: { remaining: 1.5 } }, "credits.remaining");
    await expectRefused(scene, "updateKey", { keyId, credits: { remaining: 1.5 } }, "credits.remaining");
    await expectRefused(scene, "updateCredits", { keyId, operation: "increment", value: 0.5 }, "value");
    await expectRefused(scene, "verifyKey", { key, credits: { cost: 0.5 } }, "credits.cost");
    expect(await creditsOf(scene, keyId)).toEqual({ remaining: 3 });
  });

  for (const [what, change, location] of [
    ["an unknown operation", { operation: "double", value: 1 }, "operation"],
    ["a negative value", { operation: "increment", value: -1 }, "value"],
    ["a value beyond the maximum", { operation: "set", value: maximum + 1 }, "value"],
    ["an increment without a value", { operation: "increment" }, "value"],
    ["a decrement without a value", { operation: "decrement" }, "value"],
  ] as const) {
    everyProtocol(what, async (scene) => {
      const { keyId } = await createKey(scene, { remaining: 3 });
      const { fields, detail } = await scene.refused(invalid, "updateCredits", scene.home.key, { keyId, ...change });
      expect(`${fields?.map((field) => field.location)} ${detail}`).toContain(location);
      expect(await creditsOf(scene, keyId)).toEqual({ remaining: 3 });
    });
  }

  everyProtocol("credits of a verification without a cost: only a cost of 0 that is sent is free", async (scene) => {
    const { key, keyId } = await createKey(scene, { remaining: 3 });
    await expectRefused(scene, "verifyKey", { key, credits: {} }, "credits.cost");
    await expectRefused(scene, "verifyKey", { key, credits: { cost: undefined } }, "credits.cost");
    expect(await verify(scene, key, { credits: { cost: 0 } })).toMatchObject({ valid: true, credits: 3 });
    expect(await creditsOf(scene, keyId)).toEqual({ remaining: 3 });
  });

  someProtocols(["http"], "a cost of null", async (scene) => {
    const { key, keyId } = await createKey(scene, { remaining: 3 });
    await expectRefused(scene, "verifyKey", { key, credits: { cost: null } }, "credits.cost");
    expect(await creditsOf(scene, keyId)).toEqual({ remaining: 3 });
  });

  everyProtocol("a cost below 0 or beyond the maximum of a verification", async (scene) => {
    const { key, keyId } = await createKey(scene, { remaining: 3 });
    for (const cost of [-1, 1_000_000_001])
      await expectRefused(scene, "verifyKey", { key, credits: { cost } }, "credits.cost");
    expect(await creditsOf(scene, keyId)).toEqual({ remaining: 3 });
  });
});

describe("a workspace that has reached its quota of bytes", () => {
  const full = openContract(
    undefined,
    { quotas: { keys: 100, identities: 100, bytes: 9_000 } },
    { alwaysInTurn: true },
  );

  full.everyProtocol("can set credits to 0, and change them in no other way", async (scene) => {
    const { ok, home } = scene;
    const { keyId } = await createKey(scene, { remaining: 5 });
    for (let ok = true, name = 1; ok; name++) {
      ({ ok } = await scene.call("updateKey", home.key, { keyId, name: `${name}`.repeat(100) }));
    }
    for (const [operation, value] of [
      ["set", 1],
      ["set", undefined],
      ["increment", 1],
      ["decrement", 1],
    ] as const) {
      const request = { keyId, operation, ...(value !== undefined && { value }) };
      await scene.refused("limits/quota_exceeded", "updateCredits", home.key, request);
    }
    await scene.refused("limits/quota_exceeded", "updateKey", home.key, { keyId, credits: { remaining: 1 } });
    expect(await creditsOf(scene, keyId)).toEqual({ remaining: 5 });
    for (let attempt = 1; attempt <= 3; attempt++)
      expect(await update(scene, keyId, "set", 0)).toEqual({ remaining: 0 });
    expect(await creditEvents(scene, keyId)).toHaveLength(2);
    expect((await ok("updateKey", home.key, { keyId, credits: { remaining: 0 } })).credits).toEqual({ remaining: 0 });
  });
});

everyProtocol("the byte usage of a workspace and its events are right after all changes of credits", async (scene) => {
  const { keyId } = await createKey(scene, { remaining: 5, refill: daily });
  await update(scene, keyId, "set");
  await update(scene, keyId, "set", 123_456);
  await update(scene, keyId, "decrement", 123_000);
  await scene.ok("updateKey", scene.home.key, { keyId, credits: null });
  await scene.ok("rerollKey", scene.home.key, { keyId });
  await scene.ok("deleteKey", scene.home.key, { keyId });
  const sql = openSql(contract.app.databaseUrl, { max: 1, onnotice: () => {} });
  try {
    expect(await findPartialChanges(sql)).toEqual([]);
  } finally {
    await sql.end();
  }
});
