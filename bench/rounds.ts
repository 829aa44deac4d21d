import type { Bench } from "./bench.js";
import type { Load } from "./load/load.js";
import type { Line, SideFigures } from "./row.js";
import type { Server } from "./servers.js";
import { pairRatios, type Spread, spreadOf } from "./statistics.js";

/** One of the two that are compared. */
export interface Side {
  readonly name: string;
  readonly server: Server;
  readonly load: Load;
}

/** What one round of one side came to. */
export interface Round {
  readonly callsPerSecond: number;
  readonly callsPerCpuSecond: number;
  /** How many cores the server kept busy. */
  readonly serverCores: number;
  /** How much of a core the busiest process of the server did; what serves alone is the busiest. */
  readonly busiestCores: number;
  /** How many cores the load did. */
  readonly loadCores: number;
}

/** How long, how often. */
export interface Pace {
  readonly warmUpSeconds: number;
  readonly roundSeconds: number;
  readonly pairs: number;
}

/** Puts load on one side for so long. */
export async function runRound({ server, load }: Side, seconds: number): Promise<Round> {
  const before = server.usage();
  const loadBefore = process.cpuUsage();
  const run = await load.run(seconds);
  const after = server.usage();
  const serverCpu = after.cpuSeconds - before.cpuSeconds;
  const each = [...after.cpuSecondsOf].map(([pid, seconds]) => seconds - (before.cpuSecondsOf.get(pid) ?? 0));
  const { user, system } = process.cpuUsage(loadBefore);
  server.emptyLog();
  return {
    callsPerSecond: run.calls / run.seconds,
    callsPerCpuSecond: run.calls / serverCpu,
    serverCores: serverCpu / run.seconds,
    busiestCores: each.length > 0 ? Math.max(...each) / run.seconds : Number.NaN,
    loadCores: (user + system) / 1e6 / run.seconds,
  };
}

/** The rounds of two sides: ours, theirs, ours, theirs, after a warm-up of both. */
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

/** Below this, a server had time to spare; above it, so did nobody else. In cores. */
const busy = 0.9;

/** The line that compares the throughput of two sides. */
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

/** The line of rounds that were measured in pairs. */
export function throughputLine(what: Pick<Line, "title" | "goal">, ours: SideRounds, theirs: SideRounds): Line {
  const ratio = (figure: keyof Round) => pairRatios(figures(ours.rounds, figure), figures(theirs.rounds, figure));
  return {
    ...what,
    value: ratio("callsPerSecond"),
    perCpu: ratio("callsPerCpuSecond"),
    sides: [figuresOf(ours), figuresOf(theirs)],
    notes: [ours, theirs].flatMap(limitOf),
  };
}

/** Says so where something else than the server set the pace. */
function limitOf({ name, rounds }: SideRounds): string[] {
  const server = spreadOf(figures(rounds, "busiestCores")).median;
  const load = spreadOf(figures(rounds, "loadCores")).median;
  if (load > busy) return [`the load was the limit of ${name}, not the server`];
  const waited = `${name} kept ${server.toFixed(2)} of a core busy, and waited else: for its database, or its turn`;
  return server < busy ? [waited] : [];
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
