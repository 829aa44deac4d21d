import { recentSnapshot } from "../../../src/revocation/lease.js";
import type { Dice } from "./dice.js";
import { type createPostgres, timeOfDay } from "./postgres.js";
import type { createRedis } from "./redis.js";
import { type Replica, startReplica } from "./replica.js";
import type { Tally } from "./tally.js";
import type { MachineClock, Time } from "./time.js";

/** Clocks under correction: a lease holder may have the slowest possible clock, a writer the fastest. */
export const speeds: [number, number] = [11 / 12, 13 / 12];

/** The differences between a machine's time of day and the database's, in milliseconds. */
const wallOffsetsMs: [number, number, number] = [-3_000, 0, 3_000];

/** A machine with a clock of its own, which runs one replica at a time. */
interface Machine {
  readonly name: string;
  readonly clock: MachineClock;
  /** Starts another process of the replica. */
  start(): Replica;
  replica: Replica;
}

/** The clock of a machine, with any time of day. */
export function createClock(time: Time, dice: Dice, name: string, speed: number): MachineClock {
  return time.clockOf(name, speed, timeOfDay + dice.pick(wallOffsetsMs));
}

/** Starts the two machines of a schedule. If it is about clocks, one is the slowest possible and one the fastest. */
export function startMachines(
  backends: { readonly postgres: ReturnType<typeof createPostgres>; readonly redis: ReturnType<typeof createRedis> },
  time: Time,
  dice: Dice,
  tally: Tally,
  isAboutClocks: boolean,
): [Machine, Machine] {
  const { postgres, redis } = backends;
  const startMachine = (name: string, speed: number): Machine => {
    const clock = createClock(time, dice, name, speed);
    const machine = { name, clock, cache: redis.connect(name), postgres: postgres.connect(name) };
    /** A process may know the recent past when it starts or not, and may remember many changes or one. */
    const start = (): Replica =>
      startReplica(
        machine,
        postgres.leaseMs,
        dice.pick([recentSnapshot(postgres.snapshot), postgres.snapshot]),
        postgres.timeline,
        dice.pick([1, 100_000]),
        tally,
      );
    return { name, clock, start, replica: start() };
  };
  return [
    startMachine("A", isAboutClocks ? speeds[0] : dice.pick(speeds)),
    startMachine("B", isAboutClocks ? speeds[1] : dice.pick(speeds)),
  ];
}
