import { execFile } from "node:child_process";
import { operatorKey, type TestApp } from "../../support/harness.js";

/** The result of a command. */
export interface CommandResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the built `latchkey` in its own environment, with this text as its standard input. */
export function latchkey(args: string[], env: NodeJS.ProcessEnv = {}, input = ""): Promise<CommandResult> {
  return new Promise((resolve) => {
    const options = { env: { PATH: process.env["PATH"], ...env }, timeout: 20_000 };
    const child = execFile("node", ["dist/src/main.js", ...args], options, (error, stdout, stderr) => {
      resolve({ exitCode: error === null ? 0 : Number(error.code ?? -1), stdout, stderr });
    });
    child.stdin?.end(input);
  });
}

/** The command line with this credential; credential and address come from the environment. */
export function commandLine(app: TestApp, credential = operatorKey) {
  const env = { LATCHKEY_ADDRESS: app.grpcAddress, LATCHKEY_CREDENTIAL: credential };
  return {
    run: (...args: string[]) => latchkey(args, env),
    runWith: (input: string, ...args: string[]) => latchkey(args, env, input),
    /** Runs with --json and returns the parsed output. */
    async json(...args: string[]) {
      const { exitCode, stdout, stderr } = await latchkey([...args, "--json"], env);
      if (exitCode !== 0) throw new Error(`latchkey ${args.join(" ")} exited with ${exitCode}: ${stderr}`);
      return JSON.parse(stdout);
    },
  };
}
