import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type OperatorCredential, unnamedOperator } from "../call/operators.js";
import { isOperatorKey } from "../config.js";
import { makeDataDir, syncFolder } from "../embedded/data-dir.js";
import { assertPrivateFile } from "../embedded/private.js";
import { UserError } from "../errors.js";
import { mintSecret } from "../keys/secret.js";

/** The credentials that the first start generates and stores in the data folder, readable only by its owner. */
export interface Credentials {
  /** The operator credential. It is generated at the first call. */
  operator(): OperatorCredential;
  /** Stores the key of the first workspace, so that the example commands still work after a restart. */
  storeFirstKey(key: string): void;
  /** Whether the key of the first workspace is stored. */
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
    operator() {
      makeDataDir(dataDir);
      if (!existsSync(operatorKeyFile)) storeSecret(operatorKeyFile, mintSecret("operator").plaintext);
      return { actor: unnamedOperator, key: readSecret(operatorKeyFile) };
    },
    // Replaces an older key: if there is a new first workspace, the workspace of the old key no longer exists.
    storeFirstKey: (key) => storeSecret(firstKeyFile, key),
    hasFirstKey() {
      if (!existsSync(firstKeyFile)) return false;
      readSecret(firstKeyFile); // validates the file, because the banner's commands read it
      return true;
    },
  };
}

function readSecret(file: string): string {
  assertPrivateFile(file);
  const secret = readFileSync(file, "utf8").trim();
  if (!isOperatorKey(secret)) {
    throw new UserError(
      `${file} (DATA_DIR) must contain at least 24 printable ASCII characters without spaces, and it does not. Remove the file, and start again.`,
    );
  }
  return secret;
}

/** Writes a secret atomically: an interrupted start, or a power failure, must not leave an empty credential. */
function storeSecret(file: string, secret: string): void {
  const temporaryFile = `${file}.${process.pid}`;
  try {
    writeFileSync(temporaryFile, `${secret}\n`, { mode: 0o600, flush: true });
    renameSync(temporaryFile, file);
    syncFolder(dirname(file));
  } catch (cause) {
    rmSync(temporaryFile, { force: true });
    throw new UserError(`A credential cannot be stored in DATA_DIR: ${(cause as Error).message}.`, { cause });
  }
}
