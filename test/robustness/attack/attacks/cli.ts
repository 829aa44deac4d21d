import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { type Attack, outcomeOf } from "../attack.js";

export const terminalEscapes: Attack = {
  name: "terminal-escapes",
  title: "a tenant's data controls the terminal of the user who lists it",
  async run(context) {
    const target = await context.start();
    const { key } = await target.createTenant();
    const hostile = "\u001b[31m\u009b31m\u202e\u2066\u200f";
    // An externalId may have no control characters.
    const externalId = "u\u202e\u2066\u200f";
    const created = [
      await target.call("keys.createKey", key, { name: `n${hostile}`, meta: { [`m${hostile}`]: `v${hostile}` } }),
      await target.call("identities.createIdentity", key, { externalId, meta: { text: hostile } }),
    ];
    const env = {
      ...process.env,
      LATCHKEY_ADDRESS: `127.0.0.1:${target.grpcPort}`,
      LATCHKEY_CREDENTIAL: key,
    };
    const found: string[] = [];
    for (const args of [
      ["key", "list"],
      ["key", "list", "--json"],
      ["identity", "list"],
      ["identity", "list", "--json"],
    ]) {
      const { stdout } = await promisify(execFile)(process.execPath, [context.program, ...args], { env });
      // biome-ignore lint/suspicious/noControlCharactersInRegex: the attack searches for them
      if (/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(stdout))
        found.push(args.join(" "));
    }
    return outcomeOf(
      { "output escaped": found.length === 0, "data stored": created.every(({ status }) => status === 200) },
      found.length === 0 ? "all escaped" : `unescaped in ${found.join(", ")}`,
    );
  },
};
