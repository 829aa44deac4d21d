import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type Breaker, createBreaker } from "../../../src/storage/redis/breaker.js";

/** Many probes fit in. */
const aWhileMs = 1_000;

let breaker: Breaker;
let answers: boolean;
let probes: number;
let told: boolean[];
const command = vi.fn(async () => {
  if (!answers) throw new Error("silent");
  return "answer";
});

beforeEach(async () => {
  vi.useFakeTimers();
  answers = true;
  probes = 0;
  told = [];
  command.mockClear();
  const probe = async () => {
    probes += 1;
    if (!answers) throw new Error("silent");
  };
  breaker = createBreaker(probe, (closed) => told.push(closed));
});
afterEach(() => {
  breaker.stop();
  vi.useRealTimers();
});

async function failUntilPassedBy(): Promise<number> {
  answers = false;
  for (let failures = 1; failures <= 100; failures++) {
    expect(await breaker.run(command)).toBeUndefined();
    if (!breaker.closed) return failures;
  }
  return expect.fail("the server is asked for ever, although it never answers");
}

describe("a server that does not answer is passed by", () => {
  it("from the start, until a probe has found it", async () => {
    expect(breaker.closed).toBe(false);
    expect(await breaker.run(command)).toBeUndefined();
    expect(command).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(aWhileMs);
    expect(breaker.closed).toBe(true);
    expect(await breaker.run(command)).toBe("answer");
  });

  it("for as long as no probe finds it", async () => {
    answers = false;
    await vi.advanceTimersByTimeAsync(100 * aWhileMs);
    expect(breaker.closed).toBe(false);
    expect(probes).toBeGreaterThan(100);
    expect(told).toEqual([false]);
  });

  it("after a few failures in a row, which are all that callers pay", async () => {
    await vi.advanceTimersByTimeAsync(aWhileMs);
    expect(await failUntilPassedBy()).toBeLessThanOrEqual(10);
    const paid = command.mock.calls.length;
    for (let calls = 0; calls < 1_000; calls++) expect(await breaker.run(command)).toBeUndefined();
    expect(command).toHaveBeenCalledTimes(paid);
  });

  it("not after single failures among answers", async () => {
    await vi.advanceTimersByTimeAsync(aWhileMs);
    for (let calls = 0; calls < 1_000; calls++) {
      answers = calls % 2 === 0;
      await breaker.run(command);
    }
    expect(breaker.closed).toBe(true);
  });

  it("not for failures that are forgiven; but these do not make up for others", async () => {
    await vi.advanceTimersByTimeAsync(aWhileMs);
    answers = false;
    for (let calls = 0; calls < 1_000; calls++) expect(await breaker.run(command, () => true)).toBeUndefined();
    expect(breaker.closed).toBe(true);
    for (let calls = 0; calls < 10; calls++) {
      await breaker.run(command, () => true);
      await breaker.run(command, () => false);
    }
    expect(breaker.closed).toBe(false);
  });

  it("at once when the connection is known to be lost", async () => {
    await vi.advanceTimersByTimeAsync(aWhileMs);
    breaker.trip(new Error("connection lost"));
    expect(await breaker.run(command)).toBeUndefined();
    expect(command).not.toHaveBeenCalled();
  });
});

describe("a server that answers again", () => {
  it("is used again within a second, and nobody had to try it", async () => {
    await vi.advanceTimersByTimeAsync(aWhileMs);
    await failUntilPassedBy();
    const paid = command.mock.calls.length;
    await vi.advanceTimersByTimeAsync(10 * aWhileMs);
    answers = true;
    await vi.advanceTimersByTimeAsync(aWhileMs);
    expect(breaker.closed).toBe(true);
    expect(command).toHaveBeenCalledTimes(paid);
    expect(await breaker.run(command)).toBe("answer");
  });

  it("has its old failures forgotten", async () => {
    await vi.advanceTimersByTimeAsync(aWhileMs);
    const first = await failUntilPassedBy();
    answers = true;
    await vi.advanceTimersByTimeAsync(aWhileMs);
    expect(await failUntilPassedBy()).toBe(first);
  });

  it("is told of once, as its loss was", async () => {
    await vi.advanceTimersByTimeAsync(aWhileMs);
    await failUntilPassedBy();
    breaker.trip(new Error("connection lost"));
    breaker.trip(new Error("connection lost again"));
    answers = true;
    await vi.advanceTimersByTimeAsync(10 * aWhileMs);
    expect(told).toEqual([false, true, false, true]);
  });

  it("is not probed any more", async () => {
    await vi.advanceTimersByTimeAsync(aWhileMs);
    const before = probes;
    await vi.advanceTimersByTimeAsync(10 * aWhileMs);
    expect(probes).toBe(before);
  });
});

describe("probes", () => {
  it("wait for each other: a slow server is not flooded with them", async () => {
    let waiting = 0;
    let mostWaiting = 0;
    const slow = createBreaker(
      () => {
        mostWaiting = Math.max(mostWaiting, ++waiting);
        return new Promise((resolve) => setTimeout(resolve, 5 * aWhileMs)).finally(() => waiting--);
      },
      () => {},
    );
    await vi.advanceTimersByTimeAsync(4 * aWhileMs);
    expect(mostWaiting).toBe(1);
    slow.stop();
  });

  it("end when the breaker is stopped", async () => {
    answers = false;
    breaker.stop();
    await vi.advanceTimersByTimeAsync(aWhileMs);
    expect(probes).toBe(0);
  });

  it("do not begin after the stop, although commands fail that were under way", async () => {
    await vi.advanceTimersByTimeAsync(aWhileMs);
    const before = probes;
    breaker.stop();
    answers = false;
    for (let calls = 0; calls < 10; calls++) await breaker.run(command);
    await vi.advanceTimersByTimeAsync(aWhileMs);
    expect(probes).toBe(before);
    expect(told).toEqual([false, true]);
  });
});
