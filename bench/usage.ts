import { readdirSync, readFileSync } from "node:fs";

/** What a process and its descendants have used. */
export interface Usage {
  readonly cpuSeconds: number;
  /** Memory that is resident now. */
  readonly residentBytes: number;
}

/** In what Linux counts CPU time for its users, on every machine that Node runs on. */
const ticksPerSecond = 100;

/** What the kernel says, so that the servers need not be asked while they work. Elsewhere than on Linux: not known. */
export function usageOf(pid: number): Usage {
  if (process.platform !== "linux") return { cpuSeconds: Number.NaN, residentBytes: Number.NaN };
  const own = ownUsage(pid);
  return childrenOf(pid)
    .map(usageOf)
    .reduce(
      (sum, each) => ({
        cpuSeconds: sum.cpuSeconds + each.cpuSeconds,
        residentBytes: sum.residentBytes + each.residentBytes,
      }),
      own,
    );
}

function ownUsage(pid: number): Usage {
  // The name of the program, in parentheses, may contain anything; what follows the last parenthesis may not.
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /s, "")
    .split(" ");
  const resident = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return {
    cpuSeconds: (Number(fields[11]) + Number(fields[12])) / ticksPerSecond,
    residentBytes: Number(resident) * 1_024,
  };
}

function childrenOf(pid: number): number[] {
  const threads = readdirSync(`/proc/${pid}/task`);
  const lists = threads.map((thread) => readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8"));
  return lists.flatMap((list) => list.split(" ").filter(Boolean).map(Number));
}
