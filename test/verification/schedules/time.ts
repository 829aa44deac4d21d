import type { Clock } from "../../../src/revocation/clock.js";
import type { Dice } from "./dice.js";

/** A point of the schedule: resolves when the scheduler chooses it among all that are open. */
export type Step = (what: string) => Promise<void>;

/** The clocks of one machine. */
export interface MachineClock extends Clock {
  /** Suspends the machine: its time of day goes on, and its monotonic clock does not. */
  suspend(ms: number): void;
  /** Sets the time of day ahead, or back. */
  setWall(byMs: number): void;
  /** The monotonic clock jumps ahead, as on machines whose processors do not agree. */
  leap(ms: number): void;
}

/** True time, which nobody in the simulated world can read. It stands still unless it is told to pass. */
export interface Time {
  pass(ms: number): void;
  /** Resolves when so much has passed. */
  passed(ms: number, what: string): Promise<void>;
  /** Until the first sleeper could wake: the earliest moment at which a change may be acknowledged. */
  passUntilNextAwakening(): void;
  now(): number;
  /** Both clocks run at this speed, as where chrony corrects them: 1.01 is one hundredth too fast. */
  clockOf(machine: string, speed: number, timeOfDay: number): MachineClock;
}

interface Sleeper {
  readonly awakening: string;
  /** For how long it goes on sleeping, in true time. */
  timeLeft(): number;
  wake(): void;
}

/** Timers fire this much early, which is nearly as early as they can: exactly as early, sums of fractions would decide. */
const earlyMs = 1.9;

/** In true time, less than anybody could notice: sums of fractions are not exact. */
const nothing = 1e-6;

/** How often a machine is held up between two statements, just before it reads a clock: once in so many times. */
const rarity = 50;

export function createTime(step: Step, dice: Dice): Time {
  let now = 0;
  let sleepers: Sleeper[] = [];

  function pass(ms: number): void {
    now += ms;
    const due = sleepers.filter((sleeper) => sleeper.timeLeft() <= nothing);
    if (due.length === 0) return;
    sleepers = sleepers.filter((sleeper) => !due.includes(sleeper));
    for (const sleeper of due) void step(sleeper.awakening).then(sleeper.wake);
  }

  function sleep(awakening: string, timeLeft: () => number): Promise<void> {
    return new Promise((wake) => {
      sleepers.push({ awakening, wake, timeLeft });
      pass(0);
    });
  }

  return {
    now: () => now,
    pass,
    passed(ms, what) {
      const until = now + ms;
      return sleep(what, () => until - now);
    },
    passUntilNextAwakening() {
      if (sleepers.length > 0) pass(Math.min(...sleepers.map((sleeper) => sleeper.timeLeft())));
    },
    clockOf(machine, speed, timeOfDay) {
      let suspendedMs = 0;
      let leaptMs = 0;
      let wallSetByMs = timeOfDay;
      const monotonic = () => (now - suspendedMs) * speed + leaptMs;
      const heldUp = () => {
        if (dice.mishap(rarity)) pass(dice.pick([3, 300]));
      };
      return {
        monotonic() {
          heldUp();
          return monotonic();
        },
        wall() {
          heldUp();
          return now * speed + wallSetByMs;
        },
        sleep(ms) {
          const until = monotonic() + ms - earlyMs;
          return sleep(`${machine} wakes`, () => (until - monotonic()) / speed);
        },
        suspend(ms) {
          suspendedMs += ms;
          pass(ms);
        },
        setWall(byMs) {
          wallSetByMs += byMs;
        },
        leap(ms) {
          leaptMs += ms;
          pass(0);
        },
      };
    },
  };
}
