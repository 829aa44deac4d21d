// The benchmark on the command line: `npm run bench -- --quick`.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { optionsOrExit } from "../commands/command-line.js";
import { createProgress } from "../commands/progress.js";
import { makeFolder } from "../commands/run-to-exit.js";
import { type Backends, startBackends } from "../src/embedded/start.js";
import { openBench, paces } from "./bench.js";
import { describeMachine } from "./machine.js";
import { readOptions } from "./options.js";
import { toPicture, writeResults } from "./readme.js";
import { exitCodeOf, type Report, type Result, toJson, toText } from "./report.js";
import type { Row } from "./row.js";
import { rows } from "./rows.js";

const options = optionsOrExit((args) => readOptions(args, rows));
const progress = createProgress(process.stderr);

// The servers and the backends end with this process.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(130));
const folder = makeFolder("bench");

progress.say("starting PostgreSQL");
const backends = await startBackends({
  dataDir: join(folder, "backends"),
  searchPath: process.env["PATH"] ?? "",
  withRedis: true,
  durable: true,
});
const results: Result[] = [];
try {
  for (const row of options.rows) results.push(await measure(row, backends));
} finally {
  await backends.stop();
}
progress.clear();
const report: Report = { machine: describeMachine(), quick: options.quick, results };
if (options.svg !== undefined) writeFileSync(options.svg, toPicture(report));
if (options.write) writeResults(report);
process.stdout.write(`${options.json ? toJson(report) : toText(report)}\n`);
process.exit(exitCodeOf(report));

/** Measures one row. A failure of one row does not stop the others. */
async function measure(row: Row, backends: Backends): Promise<Result> {
  const say = (text: string) => progress.say(`${row.name}: ${text}`);
  const bench = openBench({
    quick: options.quick,
    pace: paces[options.quick ? "quick" : "full"],
    folder,
    backends,
    progress: say,
  });
  try {
    return { row: row.name, lines: await row.measure(bench) };
  } catch (error) {
    return { row: row.name, title: row.title, failure: error instanceof Error ? error.message : `${error}` };
  } finally {
    await bench.close();
  }
}
