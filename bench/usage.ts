import { readdirSync, readFileSync } from "node:fs";

/** CPU time and memory of a process and its descendants. */
export interface Usage {
  readonly cpuSeconds: number;
  /** CPU seconds of each process, by process id. */
  readonly cpuSecondsOf: ReadonlyMap<number, number>;
  /** Resident memory at this moment. */
  readonly residentBytes: number;
}

/** USER_HZ, the unit of CPU time in /proc. It is 100 on every Linux machine that Node runs on. */
const ticksPerSecond = 100;

/** Reads /proc, so that the servers have no extra work during a measurement. On other systems, the figures are NaN. */
export function usageOf(pid: number): Usage {
  if (process.platform !== "linux") {
    return { cpuSeconds: Number.NaN, cpuSecondsOf: new Map(), residentBytes: Number.NaN };
  }
  const pids = processTree(pid);
  const cpuSecondsOf = new Map(pids.map((each) => [each, cpuSeconds(each)]));
  return {
    cpuSeconds: [...cpuSecondsOf.values()].reduce(sum),
    cpuSecondsOf,
    residentBytes: pids.map(residentBytes).reduce(sum),
  };
}

function cpuSeconds(pid: number): number {
  // The program name in parentheses may contain any character, so parsing starts after the last parenthesis.
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /s, "")
    .split(" ");
  return (Number(fields[11]) + Number(fields[12])) / ticksPerSecond;
}

function residentBytes(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1_024;
}

/** A process and its descendants. */
function processTree(pid: number): number[] {
  return [pid, ...childrenOf(pid).flatMap(processTree)];
}

function childrenOf(pid: number): number[] {
  const threads = readdirSync(`/proc/${pid}/task`);
  const lists = threads.map((thread) => readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8"));
  return lists.flatMap((list) => list.split(" ").filter(Boolean).map(Number));
}

function sum(a: number, b: number): number {
  return a + b;
}
