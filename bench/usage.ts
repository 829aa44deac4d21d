import { readdirSync, readFileSync } from "node:fs";

/** What a process and its descendants have used. */
export interface Usage {
  readonly cpuSeconds: number;
  /** The same of each, by its id. */
  readonly cpuSecondsOf: ReadonlyMap<number, number>;
  /** Memory that is resident now. */
  readonly residentBytes: number;
}

/** In what Linux counts CPU time for its users, on every machine that Node runs on. */
const ticksPerSecond = 100;

/** What the kernel says, so that the servers need not be asked while they work. Elsewhere than on Linux: not known. */
export function usageOf(pid: number): Usage {
  if (process.platform !== "linux") {
    return { cpuSeconds: Number.NaN, cpuSecondsOf: new Map(), residentBytes: Number.NaN };
  }
  const all = familyOf(pid);
  const cpuSecondsOf = new Map(all.map((each) => [each, cpuSeconds(each)]));
  return {
    cpuSeconds: [...cpuSecondsOf.values()].reduce(sum),
    cpuSecondsOf,
    residentBytes: all.map(residentBytes).reduce(sum),
  };
}

function cpuSeconds(pid: number): number {
  // The name of the program, in parentheses, may contain anything; what follows the last parenthesis may not.
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /s, "")
    .split(" ");
  return (Number(fields[11]) + Number(fields[12])) / ticksPerSecond;
}

function residentBytes(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1_024;
}

/** A process and its descendants. */
function familyOf(pid: number): number[] {
  return [pid, ...childrenOf(pid).flatMap(familyOf)];
}

function childrenOf(pid: number): number[] {
  const threads = readdirSync(`/proc/${pid}/task`);
  const lists = threads.map((thread) => readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8"));
  return lists.flatMap((list) => list.split(" ").filter(Boolean).map(Number));
}

function sum(a: number, b: number): number {
  return a + b;
}
