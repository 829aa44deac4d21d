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

/** What was measured while one side had load. */
interface Measurement {
  readonly calls: number;
  readonly seconds: number;
  /** CPU seconds of each process of the server, by process id. */
  readonly serverCpu: ReadonlyMap<number, number>;
  readonly loadCpu: number;
}

/** Puts load on one side for this many seconds. */
export async function runRound(side: Side, seconds: number): Promise<Round> {
  return roundOf([await measure(side, seconds)]);
}

async function measure({ server, load }: Side, seconds: number): Promise<Measurement> {
  const before = server.usage().cpuSecondsOf;
  const loadBefore = process.cpuUsage();
  const run = await load.run(seconds);
  const after = server.usage().cpuSecondsOf;
  const { user, system } = process.cpuUsage(loadBefore);
  server.emptyLog();
  const serverCpu = new Map([...after].map(([pid, cpuSeconds]) => [pid, cpuSeconds - (before.get(pid) ?? 0)]));
  return { ...run, serverCpu, loadCpu: (user + system) / 1e6 };
}

function roundOf(turns: readonly Measurement[]): Round {
  const total = (figure: (turn: Measurement) => number) => turns.reduce((sum, turn) => sum + figure(turn), 0);
  const seconds = total((turn) => turn.seconds);
  const calls = total((turn) => turn.calls);
  const pids = new Set(turns.flatMap(({ serverCpu }) => [...serverCpu.keys()]));
  // Without processes, the CPU time is unknown: this system has no /proc.
  const perProcess =
    pids.size > 0 ? [...pids].map((pid) => total(({ serverCpu }) => serverCpu.get(pid) ?? 0)) : [Number.NaN];
  const serverCpu = perProcess.reduce((sum, each) => sum + each);
  return {
    callsPerSecond: calls / seconds,
    callsPerCpuSecond: calls / serverCpu,
    serverCores: serverCpu / seconds,
    busiestCores: Math.max(...perProcess) / seconds,
    loadCores: total(({ loadCpu }) => loadCpu) / seconds,
  };
}

/**
 * For how long one side has load before it is the turn of the other. The speed of a virtual machine may double or halve within a
 * second. With turns of 0.5 s, the ratios of pairs were from 0.73 to 0.90; with turns as long as the rounds, minutes before,
 * they were from 0.49 to 1.06.
 */
const turnSeconds = 0.5;

/** Measures two sides alternately, in short turns, until each has had load for this many seconds. */
export async function takeTurns<T>(
  seconds: number,
  measureOurs: (seconds: number) => Promise<T>,
  measureTheirs: (seconds: number) => Promise<T>,
): Promise<{ ours: T[]; theirs: T[] }> {
  const turns: { ours: T[]; theirs: T[] } = { ours: [], theirs: [] };
  for (let passed = 0; passed < seconds; passed += turnSeconds) {
    turns.ours.push(await measureOurs(turnSeconds));
    turns.theirs.push(await measureTheirs(turnSeconds));
  }
  return turns;
}

/** Warms up both sides, then runs pairs of rounds. The two rounds of a pair take turns. */
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
    progress(`pair ${pair} of ${pairs}`);
    const turns = await takeTurns(
      roundSeconds,
      (seconds) => measure(ours, seconds),
      (seconds) => measure(theirs, seconds),
    );
    rounds.ours.push(roundOf(turns.ours));
    rounds.theirs.push(roundOf(turns.theirs));
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
