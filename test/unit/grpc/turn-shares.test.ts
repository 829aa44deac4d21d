import { setImmediate } from "node:timers/promises";
import { expect, it } from "vitest";
import { createTurnShares } from "../../../src/grpc/turn-shares.js";

/** A stream with waiting messages, which records each one that is processed. */
function streamOf(tenant: string, name: string, messages: number, processed: string[]) {
  let left = messages;
  return {
    tenant,
    processOne() {
      processed.push(name);
      left -= 1;
      return left > 0;
    },
  };
}

it("a tenant has its share in each turn, whatever other tenants use", async () => {
  const shares = createTurnShares(2);
  expect([shares.take("a"), shares.take("a"), shares.take("a"), shares.take("b")]).toEqual([true, true, false, true]);
  await setImmediate();
  expect(shares.take("a")).toBe(true);
});

it("waiting messages are processed in later turns, the streams of a tenant one after the other", async () => {
  const shares = createTurnShares(2);
  const processed: string[] = [];
  shares.wait(streamOf("a", "first", 4, processed));
  shares.wait(streamOf("a", "second", 1, processed));
  shares.wait(streamOf("a", "third", 2, processed));
  shares.wait(streamOf("b", "other", 2, processed));
  await setImmediate();
  expect(processed).toEqual(["first", "second", "other", "other"]);
  await setImmediate();
  expect(processed.slice(4)).toEqual(["third", "first"]);
  await setImmediate();
  await setImmediate();
  expect(processed.slice(6).sort()).toEqual(["first", "first", "third"]);
});

it("messages that are processed while others wait count in the same turn", async () => {
  const shares = createTurnShares(3);
  const processed: string[] = [];
  shares.wait(streamOf("a", "first", 2, processed));
  await setImmediate();
  expect(processed).toHaveLength(2);
  expect([shares.take("a"), shares.take("a")]).toEqual([true, false]);
});
