import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { mintSecret } from "../keys/secret.js";
import { makeDataDir } from "./data-dir.js";

/** The credentials that are made at the first start and kept in the data folder, readable by its owner alone. */
export interface Credentials {
  /** The operator's credential; made when it is first asked for. */
  operatorKey(): string;
  /** Keeps the key of the first workspace, so that the examples go on working after a restart. */
  keepFirstKey(key: string): void;
  readonly operatorKeyFile: string;
  readonly firstKeyFile: string;
}

export function createCredentials(dataDir: string): Credentials {
  const operatorKeyFile = join(dataDir, "operator.key");
  const firstKeyFile = join(dataDir, "first.key");
  return {
    operatorKeyFile,
    firstKeyFile,
    operatorKey() {
      makeDataDir(dataDir);
      keep(operatorKeyFile, mintSecret("operator").plaintext);
      return readFileSync(operatorKeyFile, "utf8").trim();
    },
    keepFirstKey: (key) => keep(firstKeyFile, key),
  };
}

/** Writes a secret unless there is one: of two starts at once, both then use the same. */
function keep(file: string, secret: string): void {
  try {
    writeFileSync(file, `${secret}\n`, { mode: 0o600, flag: "wx" });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}
