// The fuzz test on the command line: `npm run fuzz -- --cases 200000 --seed 7`.
import { optionsOrExit } from "../../../commands/command-line.js";
import { openSql } from "../../../commands/open-sql.js";
import { createProgress } from "../../../commands/progress.js";
import { makeFolder, runToExit, type Undo } from "../../../commands/run-to-exit.js";
import { migrateDatabase, openApp } from "../../../src/app.js";
import { unnamedOperator } from "../../../src/call/operators.js";
import { startBackends } from "../../../src/embedded/start.js";
import { createLog } from "../../../src/observe/log.js";
import { appOptions, redisAt } from "../../support/app-options.js";
import { readOptions } from "./options.js";
import { toJson, toLine, toText } from "./report.js";
import { runFuzz } from "./run.js";

const options = optionsOrExit(readOptions);
const operatorKey = "operator-credential-of-the-fuzz";
const crashes: string[] = [];
for (const event of ["uncaughtException", "unhandledRejection"] as const) {
  process.on(event, (error: unknown) => crashes.push(`${event}: ${error instanceof Error ? error.stack : error}`));
}
const dataDir = makeFolder("fuzz");

await runToExit(runOnce);

/** One run, with its own service and backends. Returns whether it passed. */
async function runOnce(undo: Undo): Promise<boolean> {
  const searchPath = process.env["PATH"] ?? "";
  const backends = await startBackends({ dataDir, searchPath, withRedis: true, durable: false });
  undo(() => backends.stop());
  const { databaseUrl } = backends;
  await migrateDatabase(databaseUrl);
  await shortenLease(databaseUrl);
  const app = await openApp({
    ...appOptions,
    databaseUrl,
    redis: backends.redisUrl === undefined ? undefined : redisAt(backends.redisUrl),
    operators: [{ actor: unnamedOperator, key: operatorKey }],
    log: createLog("silent"),
  });
  undo(() => app.close());

  process.stderr.write(`seed ${options.seed}, ${options.cases} cases\n`);
  const progress = createProgress(process.stderr, 5_000);
  const { failings, ...run } = await runFuzz(
    { ...app, databaseUrl, operatorKey },
    { ...options, progress: (tally) => progress.say(toLine(tally, options)) },
  );
  progress.clear();
  const report = { ...run, failings: [...failings, ...crashes] };
  process.stdout.write(`${options.json ? toJson(report, options) : toText(report, options)}\n`);
  return report.failings.length === 0;
}

/** A short lease, because a revocation waits for one lease before it is acknowledged. */
async function shortenLease(databaseUrl: string): Promise<void> {
  const sql = openSql(databaseUrl, { max: 1 });
  await sql`update cluster_state set lease_ms = 50, wait_ms = 50`;
  await sql.end();
}
