import type { Scheduler } from "fast-check";
import { VerificationCode } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { verify } from "../../../src/keys/verify.js";
import { recentSnapshot } from "../../../src/revocation/lease.js";
import { setLeaseTime } from "../../../src/revocation/lease-time.js";
import { chooseChange } from "./choose-change.js";
import { createDice } from "./dice.js";
import { LateCall } from "./late-call.js";
import { createPostgres, timeOfDay } from "./postgres.js";
import { createRedis } from "./redis.js";
import { type Replica, startReplica } from "./replica.js";
import type { Tally } from "./tally.js";
import { createTime, type MachineClock, type Step } from "./time.js";
import { expired, missing, missingAtEnd, overdue } from "./verdict.js";

const leaseMs = 250;

/** What the lease time is changed to, and from. */
const longLeaseMs = 1_000;

/** Long enough for changes to be acknowledged and calls to be made afterwards. */
const mostUsually = { steps: 60, calls: 7, lateCalls: 0, renewals: 4, writes: 2, passages: 10 };

/** Every fourth schedule is about calls whose bodies come late: those take several steps each. */
const mostWithLateCalls = { ...mostUsually, steps: 80, calls: 1, lateCalls: 5 };

/** Every fourth is about clocks: that a lease outlasts a change by a millisecond is seen only if nothing else happens then. */
const mostAboutClocks = { ...mostUsually, calls: 12, renewals: 0, writes: 1, passages: 4 };

/** Every fourth is about the lease time: it is changed while the replicas run, by two operators at times. */
const mostAboutLeaseTime = { ...mostUsually, steps: 100, calls: 4, renewals: 2, writes: 1, passages: 30 };

/** Clocks that are being corrected: that of a holder may be the slowest, that of a writer the fastest there can be. */
const speeds: [number, number] = [11 / 12, 13 / 12];

/** By how many milliseconds a machine's time of day differs from the database's. */
const ahead: [number, number, number] = [-3_000, 0, 3_000];

const hash = "the hash of a key";

/**
 * Runs two replicas over one Postgres and one Redis. Which of the open steps comes next, the scheduler decides; what
 * else is left to chance, the dice. Throws if a call was answered without a change acknowledged before it began.
 */
export async function runSchedule(scheduler: Scheduler, seed: number, tally: Tally): Promise<void> {
  let steps = 0;
  let acknowledged = 0;
  let wrong: string | undefined;

  const dice = createDice(seed);
  const most = dice.pick([mostUsually, mostWithLateCalls, mostAboutClocks, mostAboutLeaseTime]);
  const isAboutClocks = most === mostAboutClocks;
  const isAboutLeaseTime = most === mostAboutLeaseTime;
  let warmingUp = true;
  const step: Step = (what) => (warmingUp ? reached : scheduler.schedule(reached, what));
  const time = createTime(step, dice);
  const firstLeaseMs = isAboutLeaseTime ? dice.pick([leaseMs, longLeaseMs]) : leaseMs;
  const postgres = createPostgres(firstLeaseMs, step, time, dice, dice.pick(speeds));
  const redis = createRedis(step, dice);

  const startMachine = (name: string, speed: number) => {
    const clock = time.clockOf(name, speed, timeOfDay + dice.pick(ahead));
    const machine = { name, clock, cache: redis.connect(name), postgres: postgres.connect(name) };
    /** The past may be known or unknown to a process that starts, and much or little of what follows remembered. */
    const start = (): Replica =>
      startReplica(
        machine,
        postgres.leaseMs,
        dice.pick([recentSnapshot(postgres.snapshot), postgres.snapshot]),
        dice.pick([1, 100_000]),
        tally,
      );
    return { name, clock, start, replica: start() };
  };
  const machines: [ReturnType<typeof startMachine>, ReturnType<typeof startMachine>] = [
    startMachine("A", isAboutClocks ? speeds[0] : dice.pick(speeds)),
    startMachine("B", isAboutClocks ? speeds[1] : dice.pick(speeds)),
  ];

  async function call(replica: Replica): Promise<void> {
    const beganAfter = acknowledged;
    const before = { steps, readings: replica.readings, hits: replica.hits, time: postgres.time };
    try {
      const found = replica.peek(hash) ?? (await replica.get(hash));
      const moments = postgres.history.slice(beganAfter);
      wrong ??= missing(found, moments);
      const verdict = verify(found?.key, undefined, replica.databaseTime);
      const isAccepted = found?.workspaceEnabled && verdict === VerificationCode.VALID;
      if (isAccepted) wrong ??= missingAtEnd("ok", moments);
      const { expiresAt } = found?.key ?? { expiresAt: null };
      // Unless its clock was set back meanwhile.
      const hadExpired =
        expiresAt !== null && expiresAt.getTime() <= Math.min(before.time, postgres.time) - hardlyAnything;
      if (isAccepted && hadExpired) wrong ??= expired;
      if (verdict === VerificationCode.EXPIRED) tally.over += 1;
      else if (!isAccepted) tally.refused += 1;
      else if (steps === before.steps) tally.acceptedFromHoldings += 1;
      else if (replica.readings > before.readings) tally.acceptedFromPostgres += 1;
      else if (replica.hits > before.hits) tally.acceptedFromRedis += 1;
    } catch {
      tally.unavailable += 1;
    }
  }

  const lateCalls = new Set<LateCall>();

  /** A call by the whole pipeline, whose body comes late. In half of them a change waits for a connection, too. */
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
        if (call.isOverdue) wrong ??= overdue;
        await step(`${name} handles a call`);
        if (overdueAt === "statement") call.letDeadlinePass();
      },
      change: dice.oneIn(2)
        ? undefined
        : () => {
            if (call.isOverdue) wrong ??= overdue;
            return postgres.writeAsKey(name, () => {
              tally.changedAsKey += 1;
              wrong ??= missingAtEnd("ok", postgres.history.slice(acknowledged));
            });
          },
    });
    lateCalls.add(call);
    const { bodyCame, code } = await call.run();
    lateCalls.delete(call);
    wrong ??= missingAtEnd(code, postgres.history.slice(boundBy));
    if (code === "application/deadline_exceeded") tally.overdue += 1;
    else if (code === "ok") tally.acceptedLate += 1;
    else if (bodyCame && code !== "unavailable") tally.refusedLate += 1;
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
        tally.repeated += 1;
      }
    }
  }

  /** By somebody with clocks of their own, who tries again when a connection is lost. */
  async function changeLeaseTime(who: string, ms: number): Promise<void> {
    const clock = time.clockOf(who, dice.pick(speeds), timeOfDay);
    for (;;) {
      try {
        if (await setLeaseTime(postgres.leaseTimes(who), ms, clock)) tally.leaseTimeChanged += 1;
        return;
      } catch {
        // once more
      }
    }
  }

  /** A change follows at once, and calls: that is when a lease may be left that is longer than the change waits. */
  async function changeLeaseTimeAndWrite(): Promise<void> {
    await changeLeaseTime("an operator", firstLeaseMs === leaseMs ? longLeaseMs : leaseMs);
    const { replica } = dice.pick(machines);
    await replica.renewLease().catch(() => {});
    await write(replica);
    for (const machine of machines) void call(machine.replica);
  }

  // In a third of the schedules: few of the longer stories survive it. Of a machine's two clocks, one jumps: nobody could tell
  // a jump of both from time that has passed.
  const clocksJump = dice.oneIn(isAboutClocks ? 2 : 3);
  const monotonicJumps = dice.oneIn(2);

  function jump({ leap, setWall }: MachineClock): void {
    if (monotonicJumps) leap(2 * leaseMs);
    else setWall(dice.pick([-3_333, 3_333]));
  }

  function passTime(): void {
    // Where the lease time changes, many wait, and each goes on as early as it may.
    const kind = isAboutLeaseTime ? 0 : dice.below(clocksJump ? 10 : 8);
    if (kind < 4) time.passUntilNextAwakening();
    else if (kind < 5) time.pass(leaseMs / 2);
    // Too short to be noticed, or longer than a lease.
    else if (kind < 8) dice.pick(machines).clock.suspend(dice.pick([4, 4, isAboutClocks ? 4 : 2 * leaseMs]));
    else if (kind < 9) jump(dice.pick(machines).clock);
    else postgres.setClockBack(1_000);
  }

  async function repeat(times: number, what: string, act: () => Promise<void> | void): Promise<void> {
    for (let done = 0; done < times; done++) {
      await step(what);
      await act();
    }
  }

  // As if there had been a call before: otherwise most schedules would end before anything is held.
  for (const { replica } of machines) if (isAboutClocks || isAboutLeaseTime || dice.oneIn(2)) void call(replica);
  await settled();
  warmingUp = false;

  for (const machine of machines) {
    const { name } = machine;
    void repeat(most.lateCalls, `${name} gets headers`, () => void callLate(machine.replica));
    void repeat(most.calls, `${name} is called`, () => void call(machine.replica));
    void repeat(most.renewals, `${name} renews its lease`, () => machine.replica.renewLease().catch(() => {}));
    const restart = () => {
      machine.replica = machine.start();
    };
    if (dice.mishap(4)) void repeat(1, `${name} starts again`, restart);
  }
  for (const writer of isAboutClocks || isAboutLeaseTime ? ["one"] : ["one", "another"])
    void repeat(most.writes, `${writer} begins a change`, () => write(dice.pick(machines).replica));
  if (isAboutLeaseTime) {
    void repeat(1, "an operator begins", changeLeaseTimeAndWrite);
    // Who wants it as it was, and begins while the first one waits for the longer leases to end.
    const another = () => changeLeaseTime("another operator", firstLeaseMs);
    if (dice.oneIn(2)) void time.passed(longLeaseMs, "another operator begins").then(another);
  }
  void repeat(most.passages, "time passes", passTime);

  while (scheduler.count() > 0 && steps < most.steps && wrong === undefined) {
    await scheduler.waitOne();
    await settled();
    steps += 1;
  }
  for (const call of lateCalls) call.abandon();
  if (wrong !== undefined) throw new Error(wrong);
}

const reached = Promise.resolve();

/** In milliseconds: sums of fractions are not exact. */
const hardlyAnything = 1e-3;

/** When everything that can go on has gone on, up to its next step: a tick comes after all promises. */
function settled(): Promise<void> {
  return new Promise((resolve) => process.nextTick(resolve));
}
