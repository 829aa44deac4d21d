import { expect, it, onTestFinished, vi } from "vitest";
import { createRequestCounter } from "../../../src/rate-limit/counter.js";

it("a window has no more time left than its length, also after the clock was set back", async () => {
  vi.useFakeTimers({ toFake: ["Date"] });
  onTestFinished(() => void vi.useRealTimers());
  const counter = createRequestCounter({ requests: 1, windowSeconds: 2 }, undefined);
  expect(await counter.count("ws_1")).toEqual({ used: 1, msLeft: 2_000 });
  vi.setSystemTime(Date.now() - 3_600_000);
  expect(await counter.count("ws_1")).toEqual({ used: 2, msLeft: 2_000 });
});
