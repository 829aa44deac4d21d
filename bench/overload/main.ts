// Overload on the command line: `npm run overload -- --seconds 5 http-verify`.
import { join } from "node:path";
import { optionsOrExit } from "../../commands/command-line.js";
import { createProgress } from "../../commands/progress.js";
import { makeFolder } from "../../commands/run-to-exit.js";
import { startBackends } from "../../src/embedded/start.js";
import { openBench, paces } from "../bench.js";
import { describeMachine } from "../machine.js";
import { findFailings } from "./guarantees.js";
import { type Measured, measure } from "./measure.js";
import { readOptions } from "./options.js";
import { toJson, toText } from "./report.js";

const { subjects, seconds, json } = optionsOrExit(readOptions);
const progress = createProgress(process.stderr);

// The service and the backends end with this process.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(130));
const folder = makeFolder("overload");

progress.say("starting PostgreSQL");
const dataDir = join(folder, "backends");
const searchPath = process.env["PATH"] ?? "";
const backends = await startBackends({ dataDir, searchPath, withRedis: false, durable: false });
const measured: Measured[] = [];
const failings: string[] = [];
for (const subject of subjects) {
  const say = (text: string) => progress.say(`${subject.name}: ${text}`);
  const bench = openBench({ quick: false, pace: paces.full, folder, backends, progress: say });
  try {
    const found = await measure(subject, bench, seconds);
    measured.push(found);
    failings.push(...findFailings(found));
  } catch (error) {
    failings.push(`${subject.title} could not be measured: ${error instanceof Error ? error.message : error}`);
  } finally {
    await bench.close();
  }
}
await backends.stop();
progress.clear();
const report = { machine: describeMachine(), seconds, measured, failings };
process.stdout.write(`${json ? toJson(report) : toText(report)}\n`);
process.exit(failings.length === 0 ? 0 : 1);
