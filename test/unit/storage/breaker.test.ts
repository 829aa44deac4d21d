import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type Breaker, createBreaker } from "../../../src/storage/redis/breaker.js";

/** Long enough for many probes. */
const probingMs = 1_000;

let breaker: Breaker;
/** Whether the server responds. */
let available: boolean;
let probes: number;
/** The reported changes of the circuit breaker: whether it is closed. */
let changes: boolean[];
const command = vi.fn(async () => {
  if (!available) throw new Error("no response");
  return "response";
});

beforeEach(async () => {
  vi.useFakeTimers();
  available = true;
  probes = 0;
  changes = [];
  command.mockClear();
  const probe = async () => {
    probes += 1;
    if (!available) throw new Error("no response");
  };
  breaker = createBreaker(probe, (closed) => changes.push(closed));
});
afterEach(() => {
  breaker.stop();
  vi.useRealTimers();
});

async function failUntilBypassed(): Promise<number> {
  available = false;
  for (let failures = 1; failures <= 100; failures++) {
    expect(await breaker.run(command)).toBeUndefined();
    if (!breaker.closed) return failures;
  }
  return expect.fail("commands are sent for ever, although none succeeds");
}

describe("the circuit breaker bypasses a server that does not respond", () => {
  it("from the start, until a probe succeeds", async () => {
    expect(breaker.closed).toBe(false);
    expect(await breaker.run(command)).toBeUndefined();
    expect(command).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(probingMs);
    expect(breaker.closed).toBe(true);
    expect(await breaker.run(command)).toBe("response");
  });

  it("for as long as no probe succeeds", async () => {
    available = false;
    await vi.advanceTimersByTimeAsync(100 * probingMs);
    expect(breaker.closed).toBe(false);
    expect(probes).toBeGreaterThan(100);
    expect(changes).toEqual([false]);
  });

  it("after a few consecutive failures, and sends it no further command", async () => {
    await vi.advanceTimersByTimeAsync(probingMs);
    expect(await failUntilBypassed()).toBeLessThanOrEqual(10);
    const sent = command.mock.calls.length;
    for (let calls = 0; calls < 1_000; calls++) expect(await breaker.run(command)).toBeUndefined();
    expect(command).toHaveBeenCalledTimes(sent);
  });

  it("not after single failures between successes", async () => {
    await vi.advanceTimersByTimeAsync(probingMs);
    for (let calls = 0; calls < 1_000; calls++) {
      available = calls % 2 === 0;
      await breaker.run(command);
    }
    expect(breaker.closed).toBe(true);
  });

  it("not after harmless failures, which do not reset the count of other failures either", async () => {
    await vi.advanceTimersByTimeAsync(probingMs);
    available = false;
    for (let calls = 0; calls < 1_000; calls++) expect(await breaker.run(command, () => true)).toBeUndefined();
    expect(breaker.closed).toBe(true);
    for (let calls = 0; calls < 10; calls++) {
      await breaker.run(command, () => true);
      await breaker.run(command, () => false);
    }
    expect(breaker.closed).toBe(false);
  });

  it("at once when the connection is lost", async () => {
    await vi.advanceTimersByTimeAsync(probingMs);
    breaker.trip(new Error("connection lost"));
    expect(await breaker.run(command)).toBeUndefined();
    expect(command).not.toHaveBeenCalled();
  });
});

describe("the circuit breaker, after the recovery of a server", () => {
  it("closes within a second, by a probe and not by the command of a caller", async () => {
    await vi.advanceTimersByTimeAsync(probingMs);
    await failUntilBypassed();
    const sent = command.mock.calls.length;
    await vi.advanceTimersByTimeAsync(10 * probingMs);
    available = true;
    await vi.advanceTimersByTimeAsync(probingMs);
    expect(breaker.closed).toBe(true);
    expect(command).toHaveBeenCalledTimes(sent);
    expect(await breaker.run(command)).toBe("response");
  });

  it("forgets earlier failures", async () => {
    await vi.advanceTimersByTimeAsync(probingMs);
    const first = await failUntilBypassed();
    available = true;
    await vi.advanceTimersByTimeAsync(probingMs);
    expect(await failUntilBypassed()).toBe(first);
  });

  it("reports the recovery once, as it reported the outage", async () => {
    await vi.advanceTimersByTimeAsync(probingMs);
    await failUntilBypassed();
    breaker.trip(new Error("connection lost"));
    breaker.trip(new Error("connection lost again"));
    available = true;
    await vi.advanceTimersByTimeAsync(10 * probingMs);
    expect(changes).toEqual([false, true, false, true]);
  });

  it("stops probing", async () => {
    await vi.advanceTimersByTimeAsync(probingMs);
    const before = probes;
    await vi.advanceTimersByTimeAsync(10 * probingMs);
    expect(probes).toBe(before);
  });
});

describe("probes of the circuit breaker", () => {
  it("run one at a time: a slow server is not flooded with them", async () => {
    let inFlight = 0;
    let maxInFlight = 0;
    const slow = createBreaker(
      () => {
        maxInFlight = Math.max(maxInFlight, ++inFlight);
        return new Promise((resolve) => setTimeout(resolve, 5 * probingMs)).finally(() => inFlight--);
      },
      () => {},
    );
    await vi.advanceTimersByTimeAsync(4 * probingMs);
    expect(maxInFlight).toBe(1);
    slow.stop();
  });

  it("end when the circuit breaker is stopped", async () => {
    available = false;
    breaker.stop();
    await vi.advanceTimersByTimeAsync(probingMs);
    expect(probes).toBe(0);
  });

  it("do not start after the circuit breaker is stopped, even if commands in flight fail", async () => {
    await vi.advanceTimersByTimeAsync(probingMs);
    const before = probes;
    breaker.stop();
    available = false;
    for (let calls = 0; calls < 10; calls++) await breaker.run(command);
    await vi.advanceTimersByTimeAsync(probingMs);
    expect(probes).toBe(before);
    expect(changes).toEqual([false, true]);
  });
});
