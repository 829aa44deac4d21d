import { Overrides, Ratelimit } from "@unkey/ratelimit";
import { expect, it } from "vitest";
import { openFileService } from "../../support/file-service.js";

const { origin: baseUrl, key: rootKey } = await openFileService();

it("@unkey/ratelimit counts up to its limit, which an override replaces", async () => {
  // Long enough that no window ends within the test; no fallback, so that every result is the service's.
  const settings = { namespace: "email.send", limit: 2, duration: "1h", timeout: false } as const;
  const limiter = new Ratelimit({ baseUrl, rootKey, ...settings });
  expect(await limiter.limit("user_1")).toMatchObject({ success: true, limit: 2, remaining: 1 });
  expect(await limiter.limit("user_1")).toMatchObject({ success: true, limit: 2, remaining: 0 });
  expect(await limiter.limit("user_1")).toMatchObject({ success: false, limit: 2, remaining: 0 });
  expect(await limiter.limit("user_2", { cost: 2 })).toMatchObject({ success: true, remaining: 0 });

  const overrides = new Overrides({ baseUrl, rootKey });
  const override = { namespace: "email.send", identifier: "premium_*" };
  const { overrideId } = (await overrides.setOverride({ ...override, limit: 9, duration: 60_000 })).data;
  expect((await overrides.getOverride(override)).data).toMatchObject({ overrideId, limit: 9 });
  expect(await limiter.limit("premium_1")).toMatchObject({ success: true, limit: 9, remaining: 8 });
  await overrides.deleteOverride(override);
  expect(await limiter.limit("premium_2")).toMatchObject({ success: true, limit: 2, remaining: 1 });
});

it("@unkey/ratelimit fails with an unknown root key", async () => {
  const limiter = new Ratelimit({ baseUrl, rootKey: "unknown", namespace: "email.send", limit: 2, duration: "1h" });
  await expect(limiter.limit("user_1")).rejects.toMatchObject({ statusCode: 401 });
});
