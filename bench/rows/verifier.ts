import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { portOf } from "../baselines.js";
import type { Bench } from "../bench.js";
import { competitorsFolder, installCompetitors } from "../competitors.js";
import { fillDatabase, populationSeed, startWithDataset } from "../dataset.js";
import type { Latchkey } from "../latchkey.js";
import { inTurn } from "../load/http.js";
import type { LoadRun } from "../load/load.js";
import { runCommand } from "../programs/control.js";
import { alternate, type Round, type Side, throughputLine } from "../rounds.js";
import type { Line, Row } from "../row.js";
import { type Spread, spreadOf } from "../statistics.js";

/** The keys of the rows that compare throughput. */
const fewKeys = 100;

/** A service, and a program in another process that verifies its keys. */
async function startVerifiers(bench: Bench, keys: number, verifiers = 1) {
  const dataset = await startWithDataset(bench, await fillDatabase(bench, { keys, workspaces: 1 }));
  return { dataset, latchkey: dataset.latchkey, ...(await startProgram(bench, dataset.latchkey, keys, verifiers)) };
}

/** Starts the program that verifies keys. Its command `open` opens the verifiers, and caches all keys in each. */
async function startProgram(bench: Bench, { grpcPort }: Latchkey, keys: number, verifiers: number) {
  const env = { ADDRESS: `http://127.0.0.1:${grpcPort}`, SEED: populationSeed, KEYS: `${keys}` };
  const program = await bench.startServer({
    name: "local verify",
    program: [fileURLToPath(new URL("../programs/verify-locally.js", import.meta.url))],
    env: { ...env, VERIFIERS: `${verifiers}` },
    ready: /^ready on .+$/m,
  });
  return { program, port: portOf(program) };
}

function programSide(server: Side["server"], port: number): Side {
  const load = { run: (seconds: number) => runCommand<LoadRun>(port, "run", seconds), close() {} };
  return { name: server.name, server, load };
}

/** A line whose value is the ratio of calls per CPU second, because the two sides run in different processes. */
function perCpuLine(
  what: Pick<Line, "title" | "goal">,
  names: readonly [string, string],
  rounds: { readonly ours: Round[]; readonly theirs: Round[] },
): Line {
  const line = throughputLine(what, { name: names[0], rounds: rounds.ours }, { name: names[1], rounds: rounds.theirs });
  return { ...line, value: line.perCpu ?? line.value, notes: [] };
}

/** A verification in the caller's own process costs map lookups. The hash of a secret in use is computed once in 2 seconds. */
export const localVerify: Row = {
  name: "local-verify",
  title: "local verify of a cached key / HTTP verifyKey, calls per CPU second",
  async measure(bench) {
    const { dataset, program, port } = await startVerifiers(bench, fewKeys);
    await runCommand(port, "open");
    const requests = Array.from({ length: fewKeys }, (_, number) => dataset.request(number));
    const theirs = await dataset.load(inTurn(requests));
    const ours = programSide(program, port);
    const rounds = await alternate(bench, ours, theirs);
    const what = { title: localVerify.title, goal: { atLeast: 50 } };
    return [perCpuLine(what, [ours.name, "HTTP verifyKey"], rounds)];
  },
};

/** A JWT is also verified in the caller's own process, but cannot be revoked. */
export const localJwt: Row = {
  name: "local-jwt",
  title: "local verify / verifying an ES256 JWT with jose, calls per CPU second",
  async measure(bench) {
    await installCompetitors(bench.progress);
    const { program, port } = await startVerifiers(bench, fewKeys);
    await runCommand(port, "open");
    const ours = programSide(program, port);
    const compare = async (algorithm: string, what: Pick<Line, "title" | "goal">): Promise<Line> => {
      const name = `jose ${algorithm}`;
      const server = await bench.startServer({
        name,
        program: [join(competitorsFolder, "jwt.mjs")],
        env: { ALGORITHM: algorithm },
        ready: /^ready on .+$/m,
      });
      const rounds = await alternate(bench, ours, programSide(server, portOf(server)));
      return perCpuLine(what, [ours.name, name], rounds);
    };
    return [
      await compare("ES256", { title: localJwt.title, goal: { atLeast: 20 } }),
      await compare("EdDSA", { title: "the same with an EdDSA JWT" }),
    ];
  },
};

/** Changes of keys per second, while latencies are measured. */
const changesPerSecond = 50;

interface Latencies {
  readonly p50: number;
  readonly p99: number;
  readonly p999: number;
  readonly calls: number;
  readonly seconds: number;
  readonly local: number;
  readonly remote: number;
}

/** Changed keys are requested again from the service. All others are answered at once. */
export const localLatency: Row = {
  name: "local-latency",
  title: "p99.9 of a local verify, 10,000 keys in use, 50 changes a second",
  async measure(bench) {
    const keys = bench.quick ? 1_000 : 10_000;
    const { dataset, latchkey, port } = await startVerifiers(bench, keys);
    await runCommand(port, "open");
    const { population } = dataset;
    let changes = 0;
    const failures: unknown[] = [];
    const changing = setInterval(() => {
      const keyId = population.keyId(1 + (changes % (keys - 1)));
      const body = { keyId, name: `change ${changes++}` };
      latchkey.call("/v2/keys.updateKey", population.secret(0).plaintext, body).catch((error) => failures.push(error));
    }, 1_000 / changesPerSecond);
    const rounds: Latencies[] = [];
    try {
      for (let round = 0; round < bench.pace.pairs; round++) {
        bench.progress(`round ${round + 1} of ${bench.pace.pairs}`);
        rounds.push(await runCommand<Latencies>(port, "latency", Math.max(2, bench.pace.roundSeconds)));
      }
    } finally {
      clearInterval(changing);
    }
    if (failures.length > 0) throw failures[0];
    const figure = (name: keyof Latencies): Spread => spreadOf(rounds.map((round) => round[name]));
    return [
      {
        title: `p99.9 of a local verify, ${keys.toLocaleString("en-US")} keys in use, ${changesPerSecond} changes a second`,
        unit: "ms",
        value: figure("p999"),
        goal: { atMost: 1 },
        sides: [
          {
            name: "local verify",
            figures: {
              "p50, ms": figure("p50"),
              "p99, ms": figure("p99"),
              "calls/s": spreadOf(rounds.map(({ calls, seconds }) => calls / seconds)),
              "by the service": figure("remote"),
            },
          },
        ],
        notes: [`${changes} keys were changed; each change was acknowledged`],
      },
    ];
  },
};

/** What verifiers cost the service. */
export const verifierCost: Row = {
  name: "verifier-cost",
  title: "CPU of the service for 1,000 idle verifiers",
  async measure(bench) {
    const many = bench.quick ? 50 : 1_000;
    const label = many.toLocaleString("en-US");
    const ofMany = await coresOf(bench, many);
    const ofOne = await coresOf(bench, 1);
    const { keys, kibibytes } = await memoryOf(bench);
    const line = (title: string, unit: string, value: Spread): Line => ({ title, unit, value, sides: [], notes: [] });
    return [
      { ...line(`CPU of the service for ${label} idle verifiers`, "cores", ofMany.idle), goal: { atMost: 0.25 } },
      line("the same for one idle verifier", "cores", ofOne.idle),
      line(`the same for ${label} verifiers in use`, "cores", ofMany.active),
      line(`memory of the service for one verifier with ${keys.toLocaleString("en-US")} keys`, "KiB", kibibytes),
    ];
  },
};

/** A verifier renews its grant for some time after its last verification. */
const renewedForSeconds = 6;

/** The CPU that the service uses for verifiers, beyond what it uses without any. */
async function coresOf(bench: Bench, verifiers: number): Promise<{ idle: Spread; active: Spread }> {
  const { latchkey, port } = await startVerifiers(bench, 1, verifiers);
  const seconds = Math.max(3, bench.pace.roundSeconds);
  const measure = async (command: string) => {
    const before = latchkey.server.usage().cpuSeconds;
    const begunAt = performance.now();
    await runCommand(port, command, seconds);
    // Busy verifiers answer the command late.
    return (latchkey.server.usage().cpuSeconds - before) / ((performance.now() - begunAt) / 1_000);
  };
  const without = await measure("idle");
  const measureBeyond = async (command: string) => Math.max(0, (await measure(command)) - without);
  await runCommand(port, "open");
  const idle: number[] = [];
  const active: number[] = [];
  for (let round = 0; round < bench.pace.pairs; round++) {
    bench.progress(`${verifiers.toLocaleString("en-US")} verifiers, round ${round + 1} of ${bench.pace.pairs}`);
    active.push(await measureBeyond("active"));
    await runCommand(port, "idle", renewedForSeconds);
    idle.push(await measureBeyond("idle"));
  }
  return { idle: spreadOf(idle), active: spreadOf(active) };
}

/** The memory that the service uses for each verifier, beyond its own cache of the same keys. */
async function memoryOf(bench: Bench): Promise<{ keys: number; kibibytes: Spread }> {
  const keys = bench.quick ? 1_000 : 10_000;
  const verifiers = bench.quick ? 5 : 20;
  const { latchkey, port } = await startVerifiers(bench, keys);
  await runCommand(port, "open");
  const more = await startProgram(bench, latchkey, keys, verifiers);
  const before = latchkey.server.usage().residentBytes;
  await runCommand(more.port, "open");
  const bytes = latchkey.server.usage().residentBytes - before;
  return { keys, kibibytes: spreadOf([Math.max(0, bytes / verifiers / 1_024)]) };
}
