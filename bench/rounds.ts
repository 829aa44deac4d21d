import type { Bench } from "./bench.js";
import type { Load } from "./load/load.js";
import type { Line, SideFigures } from "./row.js";
import type { Server } from "./servers.js";
import { pairRatios, type Spread, spreadOf } from "./statistics.js";

/** One of the two servers of a comparison, with its load. */
export interface Side {
  readonly name: string;
  readonly server: Server;
  readonly load: Load;
}

/** The figures of one round of one side. */
export interface Round {
  readonly callsPerSecond: number;
  readonly callsPerCpuSecond: number;
  /** Cores that the server kept busy. */
  readonly serverCores: number;
  /** Fraction of a core that the server's busiest process used. A single-process server is its own busiest process. */
  readonly busiestCores: number;
  /** Cores that the load generator used. */
  readonly loadCores: number;
}

/** Durations and number of rounds. */
export interface Pace {
  readonly warmUpSeconds: number;
  readonly roundSeconds: number;
  readonly pairs: number;
}

/** Puts load on one side for this many seconds. */
export async function runRound({ server, load }: Side, seconds: number): Promise<Round> {
  const before = server.usage();
  const loadBefore = process.cpuUsage();
  const run = await load.run(seconds);
  const after = server.usage();
  const serverCpu = after.cpuSeconds - before.cpuSeconds;
  const perProcess = [...after.cpuSecondsOf].map(([pid, seconds]) => seconds - (before.cpuSecondsOf.get(pid) ?? 0));
  const { user, system } = process.cpuUsage(loadBefore);
  server.emptyLog();
  return {
    callsPerSecond: run.calls / run.seconds,
    callsPerCpuSecond: run.calls / serverCpu,
    serverCores: serverCpu / run.seconds,
    busiestCores: perProcess.length > 0 ? Math.max(...perProcess) / run.seconds : Number.NaN,
    loadCores: (user + system) / 1e6 / run.seconds,
  };
}

/** Warms up both sides, then runs rounds alternately: ours, theirs, ours, theirs. */
export async function alternate(
  { pace: { warmUpSeconds, roundSeconds, pairs }, progress }: Pick<Bench, "pace" | "progress">,
  ours: Side,
  theirs: Side,
): Promise<{ ours: Round[]; theirs: Round[] }> {
  for (const side of [ours, theirs]) {
    progress(`warm-up, ${side.name}`);
    await runRound(side, warmUpSeconds);
  }
  const rounds: { ours: Round[]; theirs: Round[] } = { ours: [], theirs: [] };
  for (let pair = 1; pair <= pairs; pair++) {
    progress(`pair ${pair} of ${pairs}, ${ours.name}`);
    rounds.ours.push(await runRound(ours, roundSeconds));
    progress(`pair ${pair} of ${pairs}, ${theirs.name}`);
    rounds.theirs.push(await runRound(theirs, roundSeconds));
  }
  return rounds;
}

/** In cores. Below this a process had idle time; above it the process was the bottleneck. */
const saturatedCores = 0.9;

/** Measures the line that compares the throughput of two sides. */
export async function compareThroughput(
  bench: Pick<Bench, "pace" | "progress">,
  what: Pick<Line, "title" | "goal">,
  ours: Side,
  theirs: Side,
): Promise<Line> {
  const rounds = await alternate(bench, ours, theirs);
  return throughputLine(what, { name: ours.name, rounds: rounds.ours }, { name: theirs.name, rounds: rounds.theirs });
}

interface SideRounds {
  readonly name: string;
  readonly rounds: readonly Round[];
}

/** The line for rounds that were measured in pairs. */
export function throughputLine(what: Pick<Line, "title" | "goal">, ours: SideRounds, theirs: SideRounds): Line {
  const ratio = (figure: keyof Round) => pairRatios(figures(ours.rounds, figure), figures(theirs.rounds, figure));
  return {
    ...what,
    value: ratio("callsPerSecond"),
    perCpu: ratio("callsPerCpuSecond"),
    sides: [figuresOf(ours), figuresOf(theirs)],
    notes: [ours, theirs].flatMap(bottleneckOf),
  };
}

/** Adds a note if the server was not the bottleneck. */
function bottleneckOf({ name, rounds }: SideRounds): string[] {
  const server = spreadOf(figures(rounds, "busiestCores")).median;
  const load = spreadOf(figures(rounds, "loadCores")).median;
  if (load > saturatedCores) return [`the load generator was the bottleneck of ${name}, not the server`];
  const note = `${name} used ${server.toFixed(2)} of a core; it waited for its database or for CPU time otherwise`;
  return server < saturatedCores ? [note] : [];
}

function figuresOf({ name, rounds }: SideRounds): SideFigures {
  const spread = (figure: keyof Round): Spread => spreadOf(figures(rounds, figure));
  return {
    name,
    figures: {
      "calls/s": spread("callsPerSecond"),
      "calls per CPU second": spread("callsPerCpuSecond"),
      "server, cores": spread("serverCores"),
      "load, cores": spread("loadCores"),
    },
  };
}

function figures(rounds: readonly Round[], figure: keyof Round): number[] {
  return rounds.map((round) => round[figure]);
}
