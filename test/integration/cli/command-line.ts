import { execFile } from "node:child_process";
import { operatorKey, type TestApp } from "../../support/harness.js";

/** How a command ended. */
export interface Outcome {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the built `latchkey` in an environment of its own, with this text as its standard input. */
export function latchkey(words: string[], env: NodeJS.ProcessEnv = {}, input = ""): Promise<Outcome> {
  return new Promise((resolve) => {
    const options = { env: { PATH: process.env["PATH"], ...env }, timeout: 20_000 };
    const child = execFile("node", ["dist/src/main.js", ...words], options, (error, stdout, stderr) => {
      resolve({ exitCode: error === null ? 0 : Number(error.code ?? -1), stdout, stderr });
    });
    child.stdin?.end(input);
  });
}

/** The command line as one who may do this sees it, with credential and address from the environment. */
export function commandLine(app: TestApp, credential = operatorKey) {
  const env = { LATCHKEY_ADDRESS: app.grpcAddress, LATCHKEY_CREDENTIAL: credential };
  return {
    run: (...words: string[]) => latchkey(words, env),
    runWith: (input: string, ...words: string[]) => latchkey(words, env, input),
    /** Runs with --json and gives back what was written. */
    async json(...words: string[]) {
      const { exitCode, stdout, stderr } = await latchkey([...words, "--json"], env);
      if (exitCode !== 0) throw new Error(`latchkey ${words.join(" ")} ended with ${exitCode}: ${stderr}`);
      return JSON.parse(stdout);
    },
  };
}
