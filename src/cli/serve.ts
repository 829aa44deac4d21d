import { existsSync } from "node:fs";
import { createInterface } from "node:readline/promises";
import { Command } from "commander";
import { type Config, readConfig, type Setting, settings } from "../config.js";
import { UserError } from "../errors.js";

const heading = "Settings (environment variables; each also with the prefix LATCHKEY_, which takes precedence):";

/** `latchkey serve`. */
export function serveCommand(environment: NodeJS.ProcessEnv): Command {
  return new Command("serve")
    .description("run the service, on an embedded database in DATA_DIR unless DATABASE_URL is set")
    .exitOverride()
    .addHelpText("after", `\n${heading}\n${Object.entries(settings).map(help).join("\n")}`)
    .action(() => run(readConfig(environment)));
}

/**
 * Runs the service for a command line without any command. A user may expect help from it, so it does not create a
 * database without consent. A process without a terminal cannot ask, and was not started by mistake.
 */
export async function serveByDefault(environment: NodeJS.ProcessEnv): Promise<void> {
  const config = readConfig(environment);
  const createsDatabase = config.databaseUrl === undefined && !existsSync(config.dataDir);
  const canAsk = process.stdin.isTTY && process.stdout.isTTY;
  if (createsDatabase && canAsk && !(await confirm(`Create a database in ${config.dataDir} and run the service?`))) {
    throw new UserError(
      "Nothing was created. `latchkey serve` runs the service, and `latchkey --help` lists all commands.",
    );
  }
  await run(config);
}

async function run(config: Config): Promise<void> {
  const { serve } = await import("../process/serve.js");
  await serve(config);
}

/** Asks a question. Anything but yes, the end of the input or Ctrl-C is a no. */
async function confirm(question: string): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  const closed = new Promise<string>((resolve) => terminal.once("close", () => resolve("")));
  const answer = await Promise.race([terminal.question(`${question} [y/N] `), closed]);
  terminal.close();
  return /^y(es)?$/i.test(answer.trim());
}

function help([name, setting]: [string, Setting]): string {
  const file = setting.isSecret ? ` Or ${name}_FILE: a file with it.` : "";
  return `  ${name} (default: ${setting.default})\n      ${setting.description}${file}`;
}
