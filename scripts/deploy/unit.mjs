import { readFileSync } from "node:fs";
import { settingsProblems, shutdownSeconds } from "./settings.mjs";

const unit = "deploy/systemd/latchkey.service";
const example = "deploy/systemd/latchkey.env.example";

/** The variables of the systemd unit and of its environment file, and the time to stop. */
export function unitProblems() {
  const settings = assignments(unit);
  const own = settings.filter(([name]) => name === "Environment").map(([, value]) => assignment(value));
  const environment = Object.fromEntries([...own, ...assignments(example)]);
  const problems = settingsProblems(unit, environment);
  if (problems.length > 0) return problems;
  if (settings.find(([name]) => name === "StartLimitIntervalSec")?.[1] !== "0") {
    return [`${unit}: StartLimitIntervalSec must be 0, or systemd gives up while PostgreSQL is unavailable`];
  }
  const needed = shutdownSeconds(environment);
  const timeout = settings.find(([name]) => name === "TimeoutStopSec")?.[1] ?? "";
  const isEnough = /^\d+s$/.test(timeout) && Number.parseInt(timeout, 10) >= needed;
  return isEnough ? [] : [`${unit}: TimeoutStopSec must be at least ${needed}s`];
}

function assignments(file) {
  return readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => /^\w+=/.test(line))
    .map(assignment);
}

function assignment(line) {
  const [, name, value] = /^(\w+)=(.*)$/.exec(line) ?? [];
  return [name, value];
}
