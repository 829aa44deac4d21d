import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { RateLimitCheckSchema } from "../../../gen/latchkey/v1/rate_limit_pb.js";
import { ApiError } from "../../../src/errors.js";
import { createLimitResolver } from "../../../src/keys/rate-limits.js";
import type { KeyState, RateLimitSettings } from "../../../src/revocation/key-state.js";

const limitsOf = createLimitResolver();

function settings(name: string, more: Partial<RateLimitSettings> = {}): RateLimitSettings {
  return { id: `rl_${name}`, name, limit: 10, duration: 1_000, autoApply: true, ...more };
}

/** A key with these limits, of an identity if that has limits, too. */
function keyWith(ratelimits: RateLimitSettings[], identityRatelimits?: RateLimitSettings[]): KeyState["key"] {
  const identityId = identityRatelimits === undefined ? null : "id_1";
  return {
    keyId: "key_1",
    workspaceId: "ws_1",
    identityId,
    ratelimits,
    identityRatelimits,
  } as unknown as KeyState["key"];
}

function resolve(key: KeyState["key"], ...checks: MessageInitShape<typeof RateLimitCheckSchema>[]) {
  return limitsOf(
    key,
    checks.map((check) => create(RateLimitCheckSchema, check)),
  );
}

const counterOf = (owner: string) => expect.stringMatching(new RegExp(`^latchkey:limit:\\{\\w+\\}:${owner}:`));

describe("the rate limits of a verification", () => {
  it("are those of the key and its identity that apply automatically, in the order of their names", () => {
    const key = keyWith([settings("c"), settings("manual", { autoApply: false })], [settings("d"), settings("a")]);
    expect(resolve(key)).toMatchObject([
      { name: "a", key: counterOf("id_1"), cost: 1 },
      { name: "c", key: counterOf("key_1"), cost: 1 },
      { name: "d", key: counterOf("id_1"), cost: 1 },
    ]);
  });

  it("are none without settings, and for a key without an identity", () => {
    expect(resolve(keyWith([]))).toEqual([]);
    expect(resolve(keyWith([settings("a", { autoApply: false })]))).toEqual([]);
  });

  it("include those that the request names, with their cost", () => {
    const key = keyWith([settings("a"), settings("b", { autoApply: false })], [settings("c", { autoApply: false })]);
    expect(resolve(key, { name: "c" }, { name: "b", cost: 5n }, { name: "a", cost: 0n })).toMatchObject([
      { name: "a", cost: 0 },
      { name: "b", cost: 5, autoApply: false },
      { name: "c", cost: 1, key: counterOf("id_1") },
    ]);
  });

  it("of the key replace those of its identity with the same name", () => {
    const key = keyWith([settings("a", { limit: 5, autoApply: false })], [settings("a")]);
    expect(resolve(key)).toEqual([]);
    expect(resolve(key, { name: "a" })).toMatchObject([{ limit: 5, key: counterOf("key_1") }]);
  });

  it("can be replaced by the request, with the same counter if the duration is the same", () => {
    const key = keyWith([], [settings("a")]);
    const [configured] = resolve(key);
    const [same] = resolve(key, { name: "a", limit: 99n, duration: 1_000n });
    expect(same).toMatchObject({ id: "rl_a", limit: 99, durationMs: 1_000, key: configured?.key });
    const [longer] = resolve(key, { name: "a", limit: 99n, duration: 2_000n });
    expect(longer).toMatchObject({ id: "rl_a", limit: 99, durationMs: 2_000, autoApply: true });
    expect(longer?.key).not.toBe(configured?.key);
  });

  it("can be defined by the request alone, and then count for the key", () => {
    const inline = { name: "new", limit: 7n, duration: 3_000n };
    expect(resolve(keyWith([], [settings("z")]), inline)).toMatchObject([
      { id: "new", name: "new", limit: 7, durationMs: 3_000, autoApply: false, key: counterOf("key_1") },
      { name: "z" },
    ]);
  });

  it("keep their counter when their limit and id change, and not when their duration does", () => {
    const counter = (more: Partial<RateLimitSettings>) => resolve(keyWith([settings("a", more)]))[0]?.key;
    expect(counter({ limit: 99, id: "rl_new" })).toBe(counter({}));
    expect(counter({ duration: 2_000 })).not.toBe(counter({}));
  });

  it("all have the hash tag of the identity, or of the key without one, whatever their names", () => {
    const names = ["{a}", "}{", "a:b", "ü".repeat(128), "a", "key_1"];
    const all = [
      ...resolve(keyWith(names.map((name) => settings(name)))),
      ...resolve(
        keyWith(
          names.map((name) => settings(name)),
          [settings("{}")],
        ),
      ),
    ];
    const tags = new Set(all.map(({ key }) => /\{(.*?)\}/.exec(key)?.[1]));
    expect(tags).toEqual(new Set(["key_1", "id_1"]));
    expect(new Set(all.map(({ key }) => key)).size).toBe(2 * names.length + 1);
    expect(Math.max(...all.map(({ key }) => key.length))).toBeLessThan(200);
  });
});

it("unknown names are refused with their location and what to do", () => {
  const attempt = () => resolve(keyWith([settings("a")]), { name: "a" }, { name: "b" }, { name: "c" });
  expect(attempt).toThrow(ApiError);
  try {
    attempt();
  } catch (error) {
    const message = expect.stringContaining("send `limit` and `duration`");
    expect((error as ApiError).options.fields).toEqual([
      { location: "ratelimits[1].name", message },
      { location: "ratelimits[2].name", message },
    ]);
  }
});
