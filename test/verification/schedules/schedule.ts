import type { Scheduler } from "fast-check";
import { VerificationCode } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { verify } from "../../../src/keys/verify.js";
import { setLeaseTime } from "../../../src/revocation/lease-time.js";
import { chooseChange } from "./choose-change.js";
import { createDice } from "./dice.js";
import { LateCall } from "./late-call.js";
import { speeds, startMachines } from "./machines.js";
import { createPostgres, timeOfDay } from "./postgres.js";
import { createRedis } from "./redis.js";
import type { Replica } from "./replica.js";
import type { Tally } from "./tally.js";
import { createTime, type MachineClock, type Step } from "./time.js";
import { expired, expiredChange, missing, missingAtEnd, overdue } from "./violations.js";

const leaseMs = 250;

/** The other lease time, in schedules that change it. */
const longLeaseMs = 1_000;

/** Long enough for changes to be acknowledged and for calls afterwards. */
const defaultLimits = { steps: 60, calls: 7, lateCalls: 0, renewals: 4, writes: 2, passages: 10 };

/** Every fourth schedule is about calls whose bodies arrive late. These take several steps each. */
const lateCallLimits = { ...defaultLimits, steps: 80, calls: 1, lateCalls: 5 };

/**
 * Every fourth is about clocks. A lease that outlasts the wait of a change by a millisecond is detected only if nothing
 * else happens at that moment.
 */
const clockLimits = { ...defaultLimits, calls: 12, renewals: 0, writes: 1, passages: 4 };

/** Every fourth is about the lease time, which one or two operators change while the replicas run. */
const leaseTimeLimits = { ...defaultLimits, steps: 100, calls: 4, renewals: 2, writes: 1, passages: 30 };

const hash = "the hash of a key";

/**
 * Runs two replicas with one PostgreSQL and one Redis. The scheduler chooses the next of the pending steps, and the
 * dice make all other random choices. Throws if a response lacked a change that was acknowledged before its call began.
 */
export async function runSchedule(scheduler: Scheduler, seed: number, tally: Tally): Promise<void> {
  let steps = 0;
  let acknowledged = 0;
  let violation: string | undefined;

  const dice = createDice(seed);
  const limits = dice.pick([defaultLimits, lateCallLimits, clockLimits, leaseTimeLimits]);
  const isAboutClocks = limits === clockLimits;
  const isAboutLeaseTime = limits === leaseTimeLimits;
  let warmingUp = true;
  const step: Step = (what) => (warmingUp ? done : scheduler.schedule(done, what));
  const time = createTime(step, dice);
  const firstLeaseMs = isAboutLeaseTime ? dice.pick([leaseMs, longLeaseMs]) : leaseMs;
  const postgres = createPostgres(firstLeaseMs, step, time, dice, dice.pick(speeds));
  const redis = createRedis(step, dice);

  const machines = startMachines({ postgres, redis }, time, dice, tally, isAboutClocks);

  async function call(replica: Replica): Promise<void> {
    const beganAfter = acknowledged;
    const before = { steps, reads: replica.reads, hits: replica.hits, time: postgres.time };
    try {
      const found = replica.peek(hash) ?? (await replica.get(hash));
      const moments = postgres.versions.slice(beganAfter);
      violation ??= missing(found, moments);
      const code = verify(found?.key, undefined, replica.databaseTime);
      const isAccepted = found?.workspaceEnabled && code === VerificationCode.VALID;
      if (isAccepted) violation ??= missingAtEnd("ok", moments);
      const { expiresAt } = found?.key ?? { expiresAt: null };
      // The minimum, because the database's clock may have been set back meanwhile.
      const hadExpired = expiresAt !== null && expiresAt.getTime() <= Math.min(before.time, postgres.time) - roundingMs;
      if (isAccepted && hadExpired) violation ??= expired;
      if (code === VerificationCode.EXPIRED) tally.expired += 1;
      else if (!isAccepted) tally.refused += 1;
      else if (steps === before.steps) tally.acceptedFromMemory += 1;
      else if (replica.reads > before.reads) tally.acceptedFromPostgres += 1;
      else if (replica.hits > before.hits) tally.acceptedFromRedis += 1;
    } catch {
      tally.unavailable += 1;
    }
  }

  const lateCalls = new Set<LateCall>();

  /**
   * A call through the whole pipeline, whose body arrives late. In half of these calls a change waits for a connection,
   * too.
   */
  async function callLate(replica: Replica): Promise<void> {
    const { name } = replica;
    const overdueAt = dice.mishap(4) ? dice.pick(["body", "statement"]) : undefined;
    let boundBy = acknowledged;
    const call = new LateCall({
      replica,
      async body() {
        await step(`${name} gets a late body`);
        boundBy = acknowledged;
        if (overdueAt === "body") call.letDeadlinePass();
      },
      async handle() {
        if (call.isOverdue) violation ??= overdue;
        await step(`${name} handles a call`);
        if (overdueAt === "statement") call.letDeadlinePass();
      },
      change: dice.oneIn(2)
        ? undefined
        : () => {
            if (call.isOverdue) violation ??= overdue;
            return postgres.writeAsKey(name, () => {
              tally.changedAsKey += 1;
              violation ??= missingAtEnd("ok", postgres.versions.slice(acknowledged));
              // An immediate end is a change like others, which may not be acknowledged yet.
              const { keyExpiresAt, keyEnded } = postgres.present;
              if (!keyEnded && keyExpiresAt !== null && keyExpiresAt <= postgres.time) violation ??= expiredChange;
            });
          },
    });
    lateCalls.add(call);
    const { bodyArrived, code } = await call.run();
    lateCalls.delete(call);
    violation ??= missingAtEnd(code, postgres.versions.slice(boundBy));
    if (code === "application/deadline_exceeded") tally.overdue += 1;
    else if (code === "ok") tally.acceptedLate += 1;
    else if (bodyArrived && code !== "unavailable") tally.refusedLate += 1;
  }

  async function write(replica: Replica): Promise<void> {
    const { row, to } = chooseChange(postgres.present, dice);
    for (;;) {
      try {
        const commits = await postgres.write(replica.name, row, to);
        await replica.awaitPropagation();
        acknowledged = Math.max(acknowledged, commits);
        tally.acknowledged += 1;
        return;
      } catch {
        tally.retried += 1;
      }
    }
  }

  /** By an operator with clocks of their own, who retries when a connection is lost. */
  async function changeLeaseTime(operator: string, ms: number): Promise<void> {
    const clock = time.clockOf(operator, dice.pick(speeds), timeOfDay);
    for (;;) {
      try {
        if (await setLeaseTime(postgres.leaseTimes(operator), ms, clock)) tally.leaseTimeChanged += 1;
        return;
      } catch {
        // retry
      }
    }
  }

  /** A change and calls follow at once, when there may still be a lease that is longer than the wait of the change. */
  async function changeLeaseTimeAndWrite(): Promise<void> {
    await changeLeaseTime("an operator", firstLeaseMs === leaseMs ? longLeaseMs : leaseMs);
    const { replica } = dice.pick(machines);
    await replica.renewLease().catch(() => {});
    await write(replica);
    for (const machine of machines) void call(machine.replica);
  }

  // In a third of the schedules, because few long sequences of events complete after a jump. Only one of a machine's
  // two clocks jumps: a jump of both cannot be distinguished from time that has passed.
  const clocksJump = dice.oneIn(isAboutClocks ? 2 : 3);
  const monotonicJumps = dice.oneIn(2);

  function jump({ leap, setWall }: MachineClock): void {
    if (monotonicJumps) leap(2 * leaseMs);
    else setWall(dice.pick([-3_333, 3_333]));
  }

  function passTime(): void {
    // While the lease time changes, many sleep, and each continues as early as possible.
    const kind = isAboutLeaseTime ? 0 : dice.below(clocksJump ? 10 : 8);
    if (kind < 4) time.passUntilNextWake();
    else if (kind < 5) time.pass(leaseMs / 2);
    // A suspension too short to be detected, or longer than a lease.
    else if (kind < 8) dice.pick(machines).clock.suspend(dice.pick([4, 4, isAboutClocks ? 4 : 2 * leaseMs]));
    else if (kind < 9) jump(dice.pick(machines).clock);
    else postgres.setClockBack(1_000);
  }

  async function repeat(times: number, what: string, act: () => Promise<void> | void): Promise<void> {
    for (let count = 0; count < times; count++) {
      await step(what);
      await act();
    }
  }

  // Warm the cache with a call. Otherwise most schedules would end before anything is cached.
  for (const { replica } of machines) if (isAboutClocks || isAboutLeaseTime || dice.oneIn(2)) void call(replica);
  await settled();
  warmingUp = false;

  for (const machine of machines) {
    const { name } = machine;
    void repeat(limits.lateCalls, `${name} gets headers`, () => void callLate(machine.replica));
    void repeat(limits.calls, `${name} is called`, () => void call(machine.replica));
    void repeat(limits.renewals, `${name} renews its lease`, () => machine.replica.renewLease().catch(() => {}));
    const restart = () => {
      machine.replica = machine.start();
    };
    if (dice.mishap(4)) void repeat(1, `${name} starts again`, restart);
  }
  for (const writer of isAboutClocks || isAboutLeaseTime ? ["one"] : ["one", "another"])
    void repeat(limits.writes, `${writer} begins a change`, () => write(dice.pick(machines).replica));
  if (isAboutLeaseTime) {
    void repeat(1, "an operator begins", changeLeaseTimeAndWrite);
    // The other operator restores the first lease time, and begins while the first one waits for the longer leases to
    // end.
    const another = () => changeLeaseTime("another operator", firstLeaseMs);
    if (dice.oneIn(2)) void time.passed(longLeaseMs, "another operator begins").then(another);
  }
  void repeat(limits.passages, "time passes", passTime);
  if (limits === defaultLimits && dice.mishap(3)) {
    void repeat(1, "a change is rolled back", async () => {
      postgres.rollBack();
      await step("PostgreSQL crashes");
      postgres.crash();
    });
  }

  while (scheduler.count() > 0 && steps < limits.steps && violation === undefined) {
    await scheduler.waitOne();
    await settled();
    steps += 1;
  }
  for (const call of lateCalls) call.disconnect();
  if (violation !== undefined) throw new Error(violation);
}

const done = Promise.resolve();

/** In milliseconds: sums of fractions are not exact. */
const roundingMs = 1e-3;

/** Resolves when everything has run up to its next step: a tick comes after all promises. */
function settled(): Promise<void> {
  return new Promise((resolve) => process.nextTick(resolve));
}
