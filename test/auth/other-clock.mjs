// Loaded before a replica (`--import`), gives it other clocks: a time of day that is CLOCK_AHEAD_MS ahead, and clocks and
// timers that all run at CLOCK_SPEED.
import { createRequire, syncBuiltinESMExports } from "node:module";

const aheadMs = Number(process.env.CLOCK_AHEAD_MS ?? 0);
const speed = Number(process.env.CLOCK_SPEED ?? 1);

const RealDate = Date;
const monotonic = performance.now.bind(performance);
const begun = { wall: RealDate.now(), monotonic: monotonic() };
const passed = () => (monotonic() - begun.monotonic) * speed;
const wall = () => Math.floor(begun.wall + aheadMs + passed());

Object.defineProperty(performance, "now", { value: () => begun.monotonic + passed() });
globalThis.Date = new Proxy(RealDate, {
  construct: (target, given) => (given.length === 0 ? new target(wall()) : new target(...given)),
  get: (target, name) => (name === "now" ? wall : target[name]),
});

const timers = createRequire(import.meta.url)("node:timers/promises");
const { setTimeout: sleep } = timers;
timers.setTimeout = (ms, ...rest) => sleep(ms / speed, ...rest);
syncBuiltinESMExports();
