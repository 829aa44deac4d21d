import { spawnSync } from "node:child_process";
import { expect, it } from "vitest";
import type { App } from "../../../src/app.js";
import { readConfig } from "../../../src/config.js";
import { banner } from "../../../src/process/banner.js";

const key = "operator-credential-of-the-banner-tests";
const app = { httpUrl: "http://127.0.0.1:8080", grpcAddress: "127.0.0.1:50051" } as App;

it.each([
  ["OPERATOR_KEY", key],
  ["LATCHKEY_OPERATOR_KEY", key],
  ["OPERATOR_KEYS", `alice:${key}`],
])(
  "with %s, the printed command uses OPERATOR_KEY, and says so if the terminal does not have it",
  (variable, value) => {
    const config = readConfig({ DATABASE_URL: "postgres://db/latchkey", [variable]: value });
    const text = banner({ config, app, operatorKeyFile: "", firstKeyFile: undefined, shownKey: undefined });
    const command = /^ +(curl .+)$/m.exec(text)?.[1];
    const paste = (environment: NodeJS.ProcessEnv) =>
      spawnSync("sh", ["-c", `curl() { printf '%s\\n' "$@"; }; ${command}`], { encoding: "utf8", env: environment });

    expect(paste({ OPERATOR_KEY: key }).stdout).toContain(`\nAuthorization: Bearer ${key}\n`);
    const { stdout, stderr } = paste({});
    expect(stdout, "no request is sent").toBe("");
    expect(stderr).toContain("OPERATOR_KEY: set it to an operator credential");
  },
);
