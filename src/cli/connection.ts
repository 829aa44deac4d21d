import { existsSync, readFileSync } from "node:fs";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { createLatchkeyClient, type LatchkeyClient } from "../client/client.js";
import type { ClientConfig } from "../config.js";
import { UserError } from "../errors.js";
import { createCredentials } from "../process/bootstrap-credentials.js";

/** Whose credential a command needs. */
export type Role = "operator" | "key";

/**
 * Connects as the flags or the environment say; by default to the service on this machine, with the keys it made. The
 * connection is encrypted if the address begins with https://, or it is told whom to trust. No flag takes a secret itself:
 * what is on the command line stands in the process list, for every user of the machine, and in the shell's history.
 */
export function connect(
  flags: { address?: string; credentialFile?: string },
  config: ClientConfig,
  role: Role,
): LatchkeyClient {
  const address = flags.address ?? config.address ?? "127.0.0.1:50051";
  const baseUrl = address.includes("://") ? address : `${config.caFile ? "https" : "http"}://${address}`;
  if (!URL.canParse(baseUrl)) throw new UserError(`The address ${address} is not of the form host:port.`);
  const given = contentOf("--credential-file", flags.credentialFile)?.toString().trim();
  const key = given ?? config.credential ?? keptCredential(config.dataDir, role);
  if (!/^[\x21-\x7e]+$/.test(key)) {
    throw new UserError(
      "The credential must be printable ASCII without spaces: check --credential-file or LATCHKEY_CREDENTIAL.",
    );
  }
  const nodeOptions = {
    ca: contentOf("LATCHKEY_CA_FILE", config.caFile),
    cert: contentOf("LATCHKEY_CERT_FILE", config.certFile),
    key: contentOf("LATCHKEY_KEY_FILE", config.keyFile),
  };
  return createLatchkeyClient({
    key,
    transport: createGrpcTransport({ baseUrl, nodeOptions, defaultTimeoutMs: 10_000 }),
  });
}

function contentOf(setting: string, file: string | undefined): Buffer | undefined {
  try {
    return file === undefined ? undefined : readFileSync(file);
  } catch (cause) {
    throw new UserError(`${setting} must be a file that can be read, and ${file} is not.`, { cause });
  }
}

function keptCredential(dataDir: string, role: Role): string {
  const { operatorKeyFile, firstKeyFile } = createCredentials(dataDir);
  const file = role === "operator" ? operatorKeyFile : firstKeyFile;
  if (existsSync(file)) return readFileSync(file, "utf8").trim();
  const wanted = role === "operator" ? "the operator's credential" : "an API key";
  throw new UserError(`This command needs ${wanted}: give --credential-file or set LATCHKEY_CREDENTIAL.`);
}
