import type { Clock } from "../../../src/revocation/clock.js";
import type { Dice } from "./dice.js";

/** A step of the schedule: resolves when the scheduler chooses it among all pending steps. */
export type Step = (what: string) => Promise<void>;

/** The clocks of one machine. */
export interface MachineClock extends Clock {
  /** Suspends the machine: its time of day continues, and its monotonic clock stops. */
  suspend(ms: number): void;
  /** Sets the time of day ahead, or back. */
  setWall(byMs: number): void;
  /** Moves the monotonic clock ahead, as on machines whose processors disagree. */
  leap(ms: number): void;
}

/** True time, which no simulated process can read. It passes only when `pass` is called. */
export interface Time {
  pass(ms: number): void;
  /** Resolves when this much has passed. */
  passed(ms: number, what: string): Promise<void>;
  /** Passes time until the first sleeper can wake: the earliest moment at which a change may be acknowledged. */
  passUntilNextWake(): void;
  now(): number;
  /** Both clocks run at this speed, as when chrony corrects them: 1.01 is one hundredth too fast. */
  clockOf(machine: string, speed: number, timeOfDay: number): MachineClock;
}

interface Sleeper {
  readonly wakeStep: string;
  /** How long it still sleeps, in true time. */
  timeLeft(): number;
  wake(): void;
}

/** Timers fire this much early, nearly as early as they can. At the exact limit, rounding errors would decide. */
const earlyMs = 1.9;

/** In true time, less than any process could notice: sums of fractions are not exact. */
const roundingMs = 1e-6;

/** A machine is paused just before it reads a clock, once in so many times. */
const pauseRarity = 50;

export function createTime(step: Step, dice: Dice): Time {
  let now = 0;
  let sleepers: Sleeper[] = [];

  function pass(ms: number): void {
    now += ms;
    const due = sleepers.filter((sleeper) => sleeper.timeLeft() <= roundingMs);
    if (due.length === 0) return;
    sleepers = sleepers.filter((sleeper) => !due.includes(sleeper));
    for (const sleeper of due) void step(sleeper.wakeStep).then(sleeper.wake);
  }

  function sleep(wakeStep: string, timeLeft: () => number): Promise<void> {
    return new Promise((wake) => {
      sleepers.push({ wakeStep, wake, timeLeft });
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
    passUntilNextWake() {
      if (sleepers.length > 0) pass(Math.min(...sleepers.map((sleeper) => sleeper.timeLeft())));
    },
    clockOf(machine, speed, timeOfDay) {
      let suspendedMs = 0;
      let leaptMs = 0;
      let wallSetByMs = timeOfDay;
      const monotonic = () => (now - suspendedMs) * speed + leaptMs;
      const maybePause = () => {
        if (dice.mishap(pauseRarity)) pass(dice.pick([3, 300]));
      };
      return {
        monotonic() {
          maybePause();
          return monotonic();
        },
        wall() {
          maybePause();
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
