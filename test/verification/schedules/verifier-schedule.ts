import type { Scheduler } from "fast-check";
import type { VerifyResult } from "../../../src/verifier/result.js";
import { chooseChange } from "./choose-change.js";
import { createDice } from "./dice.js";
import { createClock, speeds, startMachines } from "./machines.js";
import { type Contents, createPostgres, timeOfDay, verifierKeyId } from "./postgres.js";
import { createRedis } from "./redis.js";
import type { Replica } from "./replica.js";
import { createTally } from "./tally.js";
import { createTime, type Step } from "./time.js";
import { createVerifier } from "./verifier.js";
import { expired, outdated } from "./violations.js";

/** The number of events in all schedules. A schedule without events proves nothing. */
export interface VerifierTally {
  acceptedLocally: number;
  refusedLocally: number;
  notFound: number;
  /** Local verifications of a key with an expiry. */
  acceptedWithExpiry: number;
  /** There was no right, or no key state. */
  notLocal: number;
  resolved: number;
  acknowledged: number;
  reconnected: number;
  dropped: number;
}

export function createVerifierTally(): VerifierTally {
  return {
    acceptedLocally: 0,
    refusedLocally: 0,
    notFound: 0,
    acceptedWithExpiry: 0,
    notLocal: 0,
    resolved: 0,
    acknowledged: 0,
    reconnected: 0,
    dropped: 0,
  };
}

const leaseMs = 250;

const defaultLimits = { steps: 160, verifications: 20, pings: 6, renewals: 5, writes: 3, passages: 12, breaks: 2 };

/**
 * Every third schedule is about clocks. A right that outlasts the wait of a change by a millisecond is detected only if
 * nothing else happens at that moment.
 */
const clockLimits = { steps: 80, verifications: 12, pings: 3, renewals: 0, writes: 1, passages: 4, breaks: 0 };

/**
 * Every sixth schedule is about the expiry of a key. A key that is accepted after it is detected only if the verifier has a
 * right all the time, and time passes in short spans.
 */
const expiryLimits = { steps: 80, verifications: 8, pings: 8, renewals: 6, writes: 0, passages: 8, breaks: 0 };

/** In how many milliseconds a key expires that has an expiry from the start. */
const expiryMs: [number, number, number] = [137, 411, 1_500];

const hash = "ab".repeat(32);

/** In milliseconds: sums of fractions are not exact. */
const roundingMs = 1e-3;

/**
 * Runs a verifier and two replicas with one PostgreSQL and one Redis. Throws if the verifier answered contrary to a
 * change that was acknowledged before its verification began.
 */
export async function runVerifierSchedule(scheduler: Scheduler, seed: number, tally: VerifierTally): Promise<void> {
  let steps = 0;
  let acknowledged = 0;
  let violation: string | undefined;

  const dice = createDice(seed);
  const limits = dice.pick([defaultLimits, defaultLimits, defaultLimits, clockLimits, clockLimits, expiryLimits]);
  const isAboutClocks = limits === clockLimits;
  const isAboutExpiry = limits === expiryLimits;
  let warmingUp = true;
  const step: Step = (what) => (warmingUp ? done : scheduler.schedule(done, what));
  const time = createTime(step, dice);
  // The key may be created only during the schedule, or expire during it.
  const kind = isAboutClocks ? 0 : isAboutExpiry ? 4 : dice.below(8);
  const first =
    kind === 7 ? { keyDeleted: true } : kind > 3 ? { keyExpiresAt: timeOfDay + dice.pick(expiryMs) } : undefined;
  const postgres = createPostgres(leaseMs, step, time, dice, dice.pick(speeds), { first, losesDetails: true });
  const redis = createRedis(step, dice);

  const machines = startMachines({ postgres, redis }, time, dice, createTally(), isAboutClocks);
  const speed = isAboutClocks ? speeds[0] : dice.pick(speeds);
  const clock = createClock(time, dice, "V", speed);
  const verifier = createVerifier("V", clock, step, dice.pick([1, 2, 1_000]));

  function check(result: VerifyResult, began: { readonly after: number; readonly time: number }): void {
    const moments = postgres.versions.slice(began.after);
    violation ??= contrary(result, moments);
    if (!result.valid) return;
    const { expires } = result;
    // The minimum, because the database's clock may have been set back meanwhile.
    const hadExpired = expires !== undefined && expires.getTime() <= Math.min(began.time, postgres.time) - roundingMs;
    if (hadExpired) violation ??= expired;
  }

  /** As `verify` of the library does it, without the call to the service at the end. */
  async function verify(): Promise<void> {
    const began = { after: acknowledged, time: postgres.time };
    const { session } = verifier;
    const state = session?.find(hash);
    if (state !== undefined) {
      check(state.result, began);
      if (state.result.valid && state.result.expires) tally.acceptedWithExpiry += 1;
      if (state.result.valid) tally.acceptedLocally += 1;
      else tally.refusedLocally += 1;
      return;
    }
    tally.notLocal += 1;
    if (!session?.isGranted()) {
      if (dice.oneIn(2)) verifier.session?.ping();
      return;
    }
    const isEarlier = session.isResolving(hash);
    const resolved = await session.resolve(hash);
    tally.resolved += 1;
    const found = session.find(hash);
    if (found !== undefined) check(found.result, began);
    else if (resolved === "not found" && !isEarlier) {
      tally.notFound += 1;
      const moments = postgres.versions.slice(began.after);
      if (!moments.some(({ keyDeleted, workspaceDeleted }) => keyDeleted || workspaceDeleted))
        violation ??= `a key was not found: ${outdated}`;
    }
  }

  async function connect(): Promise<void> {
    const { replica } = isAboutClocks ? machines[0] : dice.pick(machines);
    await verifier.connect(replica).catch(() => {});
    tally.reconnected += 1;
    verifier.session?.ping();
  }

  async function write(replica: Replica): Promise<void> {
    const { row, to } = chooseVerifierChange();
    for (;;) {
      try {
        const commits = await postgres.write(replica.name, row, to);
        await replica.awaitPropagation();
        acknowledged = Math.max(acknowledged, commits);
        tally.acknowledged += 1;
        // The first moment at which the change binds.
        if (isAboutClocks) void verify();
        return;
      } catch {
        // retry
      }
    }
  }

  function chooseVerifierChange() {
    const { present } = postgres;
    if (present.keyDeleted) return { row: "key", to: () => ({ keyDeleted: false }) };
    if (!dice.oneIn(5)) return chooseChange(present, dice);
    return { row: verifierKeyId, to: () => ({ verifierEnabled: !present.verifierEnabled }) };
  }

  // Only one of a machine's two clocks jumps: a jump of both cannot be distinguished from time that has passed.
  const clocksJump = dice.oneIn(3);
  const monotonicJumps = dice.oneIn(2);
  const slowClocks = [clock, machines[0].clock] as const;
  const clocks = [clock, machines[0].clock, machines[1].clock] as const;

  // In half of the schedules about clocks, the change is made at first, and then the slow machines are suspended: so all the
  // time that the margins are for passes while the change waits.
  const isAboutMargins = isAboutClocks && dice.oneIn(2);
  const suspendedFirst = isAboutMargins ? [machines[0].clock, clock] : [];

  function passTime(): void {
    const suspended = suspendedFirst.shift();
    const kind = dice.below(clocksJump ? 10 : 8);
    if (suspended !== undefined) suspended.suspend(4);
    else if (isAboutExpiry) time.pass(dice.pick([20, 40, 80]));
    else if (kind < 4) time.passUntilNextWake();
    else if (kind < 5 && isAboutMargins === isAboutClocks) time.pass(leaseMs / 2);
    // A suspension too short to be detected, or longer than a lease.
    else if (kind < 8)
      dice.pick(isAboutClocks ? slowClocks : clocks).suspend(dice.pick([4, 4, isAboutClocks ? 4 : 2 * leaseMs]));
    else if (kind === 9) postgres.setClockBack(1_000);
    else if (monotonicJumps) dice.pick(clocks).leap(2 * leaseMs);
    else dice.pick(clocks).setWall(dice.pick([-3_333, 3_333]));
  }

  async function repeat(times: number, what: string, act: () => Promise<void> | void): Promise<void> {
    for (let count = 0; count < times; count++) {
      await step(what);
      await act();
    }
  }

  // The verifier has a right and the state of the key from the start. Otherwise most schedules would end before that.
  for (const { replica } of machines) void replica.renewLease().catch(() => {});
  await settled();
  void connect();
  for (let turns = 0; turns < 3; turns++) {
    await settled();
    // The time of a key with an expiry counts from the request for its state.
    if (!isAboutExpiry) void verify();
  }
  if (isAboutMargins) void write(machines[1].replica);
  await settled();
  warmingUp = false;

  for (const machine of machines) {
    const { name } = machine;
    void repeat(limits.renewals, `${name} renews its lease`, () => machine.replica.renewLease().catch(() => {}));
    const restart = () => {
      if (verifier.isConnectedTo(machine.replica)) verifier.disconnect();
      machine.replica = machine.start();
    };
    if (dice.mishap(4)) void repeat(1, `${name} starts again`, restart);
  }
  const writers = isAboutClocks ? [machines[1]] : [dice.pick(machines), dice.pick(machines)];
  for (const machine of writers)
    void repeat(isAboutMargins ? 0 : limits.writes, `${machine.name} begins a change`, () => write(machine.replica));
  // With an expiry, it verifies rarely: much may happen between two verifications.
  const isRare = first !== undefined && dice.oneIn(2);
  void repeat(isRare ? 4 : limits.verifications, "V verifies", () => void verify());
  void repeat(isRare ? 2 * limits.pings : limits.pings, "V pings", () => verifier.session?.ping());
  if (limits.breaks > 0) {
    if (dice.oneIn(2)) void repeat(limits.breaks, "the stream of V breaks", verifier.disconnect);
    void repeat(2 * limits.breaks, "V connects", () => void connect());
  }
  void repeat(limits.passages, "time passes", passTime);

  while (scheduler.count() > 0 && steps < limits.steps && violation === undefined) {
    await scheduler.waitOne();
    await settled();
    steps += 1;
  }
  verifier.disconnect();
  tally.dropped += verifier.dropped;
  if (violation !== undefined) throw new Error(violation);
}

const done = Promise.resolve();

/** The violation in the result of a local verification, if any. `moments` are the contents since it began. */
function contrary(result: VerifyResult, moments: readonly Contents[]): string | undefined {
  const agrees = (holds: (moment: Contents) => boolean) => moments.some(holds);
  // A verifier whose own key or workspace was revoked may not verify at all.
  if (!agrees(({ verifierEnabled }) => verifierEnabled)) return `a revoked verifier verified a key: ${outdated}`;
  if (!agrees(({ workspaceEnabled, workspaceDeleted }) => workspaceEnabled && !workspaceDeleted))
    return `a key of a disabled or deleted workspace was verified: ${outdated}`;
  if (!agrees((moment) => isResultOf(result, moment))) return `a key was verified as ${result.code}: ${outdated}`;
  return undefined;
}

function isResultOf(result: VerifyResult, moment: Contents): boolean {
  const { workspaceDeleted, keyEnabled, keyDeleted, keyEnded, keyExpiresAt, ownerName } = moment;
  if (result.valid) {
    const hasSameExpiry = (result.expires?.getTime() ?? null) === keyExpiresAt;
    const hasSameOwner = result.identity?.externalId === ownerName;
    return keyEnabled && !keyDeleted && !keyEnded && hasSameExpiry && hasSameOwner;
  }
  if (result.code === "NOT_FOUND") return keyDeleted || workspaceDeleted;
  if (keyDeleted) return false;
  if (result.code === "DISABLED") return !keyEnabled;
  return result.code === "EXPIRED" && keyEnabled && (keyEnded || keyExpiresAt !== null);
}

/** Resolves when everything has run up to its next step: a tick comes after all promises. */
function settled(): Promise<void> {
  return new Promise((resolve) => process.nextTick(resolve));
}
