// The attacks on the command line: `npm run attack`, or `npm run attack -- late-body scopes`.
import { optionsOrExit } from "../../../commands/command-line.js";
import { createProgress } from "../../../commands/progress.js";
import { runToExit } from "../../../commands/run-to-exit.js";
import type { Outcome } from "./attack.js";
import { attacks } from "./attacks.js";
import { readOptions } from "./options.js";
import { type Result, toJson, toText } from "./report.js";
import { openAttackContext } from "./site.js";

const options = optionsOrExit(readOptions);
const selected = options.attacks.length > 0 ? options.attacks : attacks;

/** The maximum duration of an attack. */
const attackTimeoutMs = 180_000;

await runToExit(async (undo) => {
  const progress = createProgress(process.stderr);
  progress.say("starting PostgreSQL and Redis");
  const context = await openAttackContext();
  undo(context.close);
  const results: Result[] = [];
  for (const [index, attack] of selected.entries()) {
    progress.say(`${index + 1} of ${selected.length}: ${attack.name}`);
    const startedAt = performance.now();
    const outcome = await withTimeout(attack.run(context)).catch(toOutcome);
    await context.runCleanups();
    results.push({ name: attack.name, title: attack.title, ms: performance.now() - startedAt, ...outcome });
  }
  progress.clear();
  process.stdout.write(`${options.json ? toJson(results) : toText(results)}\n`);
  return results.every(({ withstood }) => withstood);
});

/** An attack that cannot be carried out proves nothing, so it counts as failed. */
function toOutcome(error: unknown): Outcome {
  const { message, cause } = error as Error;
  return { withstood: false, observed: cause instanceof Error ? `${message} (${cause.message})` : message };
}

async function withTimeout<T>(work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`timeout: the attack did not end within ${attackTimeoutMs / 1_000} s`)),
      attackTimeoutMs,
    );
  });
  try {
    return await Promise.race([work, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
