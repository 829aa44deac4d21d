// Loaded before a replica (`--import`), this gives it other clocks: a time of day that is CLOCK_AHEAD_MS ahead, and
// clocks and timers that all run at CLOCK_SPEED. Both clocks stand still while the process is suspended, as those of a
// virtual machine may; with WALL_CONTINUES, the time of day continues, as on a laptop. The file PAUSES_FILE contains the total suspension so far in milliseconds. It is written before
// the process continues.
import { readFileSync } from "node:fs";
import { createRequire, syncBuiltinESMExports } from "node:module";

const aheadMs = Number(process.env.CLOCK_AHEAD_MS ?? 0);
const speed = Number(process.env.CLOCK_SPEED ?? 1);
const pausesFile = process.env.PAUSES_FILE;
const wallContinues = process.env.WALL_CONTINUES === "1";

/** Every pause is longer than this. Reading the file at every clock reading would take too long. */
const minPauseMs = 100;

/** Timers fire a little early, as those of the event loop do. */
const timerSlackMs = 2;

const RealDate = Date;
const realMonotonic = performance.now.bind(performance);
const pausesSoFar = () => (pausesFile ? Number(readFileSync(pausesFile, "utf8")) : 0);

let pausesCounted = pausesSoFar();
let lastReading = realMonotonic();
let stoodStillMs = 0;

function monotonic() {
  const now = realMonotonic();
  const sinceLast = now - lastReading;
  lastReading = now;
  if (sinceLast > minPauseMs) {
    const pauses = pausesSoFar();
    // Never more than the time that has passed, because the clock must not go back.
    stoodStillMs += Math.min(pauses - pausesCounted, sinceLast);
    pausesCounted = pauses;
  }
  return now - stoodStillMs;
}

const begun = { wall: RealDate.now(), monotonic: monotonic() };
const passed = () => (monotonic() - begun.monotonic) * speed;
const wall = () => {
  const monotonicMs = passed(); // counts the pauses
  return Math.floor(begun.wall + aheadMs + monotonicMs + (wallContinues ? stoodStillMs * speed : 0));
};
const now = () => begun.monotonic + passed();

Object.defineProperty(performance, "now", { value: now });
globalThis.Date = new Proxy(RealDate, {
  construct: (target, given) => (given.length === 0 ? new target(wall()) : new target(...given)),
  get: (target, name) => (name === "now" ? wall : target[name]),
});

const timers = createRequire(import.meta.url)("node:timers/promises");
const { setTimeout: sleep } = timers;
timers.setTimeout = async (ms, value, options) => {
  const due = now() + ms;
  let left = ms;
  do {
    await sleep(left / speed, undefined, options);
    left = due - now();
  } while (left > timerSlackMs);
  return value;
};
syncBuiltinESMExports();
