import { expect, it } from "vitest";
import { createChangeLog } from "../../../src/revocation/change-log.js";
import type { ChangeSource } from "../../../src/revocation/change-poller.js";
import { createLease } from "../../../src/revocation/lease.js";
import { snapshotBefore } from "../../../src/revocation/snapshot.js";

const leaseMs = 250;
/**
 * A drift of 5 ms is not detected. The lease holder's clock may be a twelfth too slow, the writer's a twelfth too fast.
 */
const waitMs = ((leaseMs + 5) * 13) / 11;

/**
 * A lease on a machine with simulated clocks. Each sleep advances them, then `whileAsleep` moves them further. A poll takes
 * `pollMs`. The database reads its clock at the beginning, which is 0 for it, and takes its snapshot later.
 */
function openLease(whileAsleep: (clocks: { monotonic: number; wall: number }, sleep: number) => void, pollMs = 0) {
  const clocks = { monotonic: 0, wall: 1_000_000 };
  let slept = 0;
  let pauseMs = 0;
  const source: ChangeSource = {
    connect: async () => {},
    startTimeline: async () => {},
    startTimelineAfterCrash: async () => {},
    async changedSince(snapshot) {
      clocks.monotonic += pollMs;
      clocks.wall += pollMs;
      return {
        snapshot,
        leaseMs,
        waitMs: leaseMs,
        timeline: "timeline 1",
        standby: false,
        subscribed: false,
        unsafeSetting: null,
        time: 0,
        changes: [],
      };
    },
  };
  const clock = {
    monotonic: () => clocks.monotonic,
    wall() {
      clocks.monotonic += pauseMs;
      clocks.wall += pauseMs;
      pauseMs = 0;
      return clocks.wall;
    },
    async sleep(ms: number) {
      slept += ms;
      clocks.monotonic += ms;
      clocks.wall += ms;
      whileAsleep(clocks, ms);
    },
  };
  return {
    lease: createLease(source, createChangeLog(snapshotBefore(0), "timeline 1"), leaseMs, clock),
    slept: () => slept,
    clocks,
    /** Pauses the process before its next reading of the time of day. */
    pauseBeforeWall(ms: number) {
      pauseMs = ms;
    },
  };
}

it("a change waits until the lease of the slowest clock has ended, measured by the fastest clock", async () => {
  const { lease, slept } = openLease(() => {});
  await lease.waitOut();
  expect(slept()).toBeGreaterThanOrEqual(waitMs);
  expect(slept()).toBeLessThan(waitMs + 5);
});

it.each(["monotonic", "wall"] as const)(
  "a change waits as long if the %s clock of its writer jumps ahead",
  async (which) => {
    const { lease, slept } = openLease((clocks) => {
      clocks[which] += 3_600_000;
    });
    await lease.waitOut();
    expect(slept()).toBeGreaterThanOrEqual(waitMs);
  },
);

it("a change continues to wait if its timer fires at half the time", async () => {
  const { lease, slept } = openLease((clocks, ms) => {
    clocks.monotonic -= ms / 2;
    clocks.wall -= ms / 2;
  });
  await lease.waitOut();
  expect(slept() / 2).toBeGreaterThanOrEqual(waitMs);
});

it("a change waits at most twice as long if its time of day is set back", async () => {
  let sleeps = 0;
  const { lease, slept } = openLease((clocks) => {
    if (sleeps++ === 0) clocks.wall -= 3_600_000;
  });
  await lease.waitOut();
  expect(slept()).toBeGreaterThanOrEqual(waitMs);
  expect(slept()).toBeLessThan(2 * (waitMs + 5));
});

it.each([0, 40, 200])(
  "by the database's clock, a lease ends one lease time after the reading before its snapshot, if the poll took %d ms",
  async (pollMs) => {
    const { lease } = openLease(() => {}, pollMs);
    expect(lease.databaseDeadline().getTime(), "before the first poll, no statement may begin").toBe(0);
    await lease.renew();
    expect(lease.databaseDeadline().getTime()).toBe(leaseMs);
  },
);

it("the database's time is known if the process is paused between its readings of the two clocks", async () => {
  const { lease, clocks, pauseBeforeWall } = openLease(() => {});
  await lease.renew();
  pauseBeforeWall(1_000);
  const time = lease.databaseTime().getTime();
  expect(clocks.monotonic, "the pause is over").toBe(1_000);
  expect(time, "the time after the pause, by the fastest clock of the database").toBe(Math.trunc((1_000 * 13) / 11));
});

it.each(["monotonic", "wall"] as const)(
  "the database's time is not known after a jump of the %s clock, until the next poll",
  async (which) => {
    const { lease, clocks } = openLease(() => {});
    await lease.renew();
    clocks[which] += 1_000;
    expect(() => lease.databaseTime()).toThrow("The service cannot reach its database");
    await lease.renew();
    expect(lease.databaseTime().getTime()).toBe(0);
  },
);
