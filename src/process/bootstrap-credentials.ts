import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isOperatorKey } from "../config.js";
import { makeDataDir } from "../embedded/data-dir.js";
import { refuseUnlessSecret } from "../embedded/private.js";
import { UserError } from "../errors.js";
import { mintSecret } from "../keys/secret.js";

/** The credentials that are made at the first start and kept in the data folder, readable by its owner alone. */
export interface Credentials {
  /** The operator's credential; made when it is first asked for. */
  operatorKey(): string;
  /** Keeps the key of the first workspace, so that the examples go on working after a restart. */
  keepFirstKey(key: string): void;
  /** Whether there is such a key. */
  hasFirstKey(): boolean;
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
      if (!existsSync(operatorKeyFile)) keep(operatorKeyFile, mintSecret("operator").plaintext);
      return readSecret(operatorKeyFile);
    },
    // In place of an older one, whose workspace is gone if there is a new first one.
    keepFirstKey: (key) => keep(firstKeyFile, key),
    hasFirstKey() {
      if (!existsSync(firstKeyFile)) return false;
      readSecret(firstKeyFile); // it is about to be named in commands for pasting
      return true;
    },
  };
}

function readSecret(file: string): string {
  refuseUnlessSecret(file);
  const secret = readFileSync(file, "utf8").trim();
  if (!isOperatorKey(secret)) {
    throw new UserError(
      `${file} (DATA_DIR) must hold at least 24 printable ASCII characters without spaces, and it does not. Remove the file, and start again.`,
    );
  }
  return secret;
}

/** Writes a secret whole or not at all: a start that is cut off here must not leave an empty credential. */
function keep(file: string, secret: string): void {
  const draft = `${file}.${process.pid}`;
  try {
    writeFileSync(draft, `${secret}\n`, { mode: 0o600 });
    renameSync(draft, file);
  } catch (cause) {
    rmSync(draft, { force: true });
    throw new UserError(`A credential cannot be kept in DATA_DIR: ${(cause as Error).message}.`, { cause });
  }
}
