import { existsSync, readFileSync } from "node:fs";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { isSendable } from "../client/credential.js";
import { createProtobufClient, type ProtobufClient } from "../client/protobuf.js";
import type { ClientConfig } from "../config.js";
import { UserError } from "../errors.js";
import { createCredentials } from "../process/bootstrap-credentials.js";
import { explainConnectionErrors } from "./connection-errors.js";

/** The flags of the address and the credential. */
export interface ConnectionFlags {
  readonly address?: string;
  readonly credentialFile?: string;
}

/** The kind of credential that a command needs. */
export type Role = "operator" | "key";

/**
 * Connects with the address and credential of the flags or the environment. The default is the service on this machine,
 * with the credentials that it generated. The connection uses TLS if the address begins with https://, or if a CA file
 * is set. No flag takes a secret itself: every user of the machine can read the command line in the process list, and
 * the shell stores it in its history.
 */
export function connect(flags: ConnectionFlags, config: ClientConfig, role: Role): ProtobufClient {
  const address = flags.address ?? config.address ?? "127.0.0.1:50051";
  const baseUrl = address.includes("://") ? address : `${config.caFile ? "https" : "http"}://${address}`;
  if (!URL.canParse(baseUrl)) throw new UserError(`The address ${address} does not have the form host:port.`);
  const nodeOptions = {
    ca: readSetting("LATCHKEY_CA_FILE", config.caFile),
    cert: readSetting("LATCHKEY_CERT_FILE", config.certFile),
    key: readSetting("LATCHKEY_KEY_FILE", config.keyFile),
  };
  const transport = createGrpcTransport({ baseUrl, nodeOptions, defaultTimeoutMs: 10_000 });
  return createProtobufClient({
    key: credentialOf(flags, config, role),
    transport: explainConnectionErrors(transport, new URL(baseUrl)),
  });
}

/** The credential of the flags, the environment, or the data folder. */
export function credentialOf(flags: ConnectionFlags, config: ClientConfig, role: Role): string {
  const fromFlag = readSetting("--credential-file", flags.credentialFile)?.toString().trim();
  const credential = fromFlag ?? config.credential ?? storedCredential(config.dataDir, role);
  if (!isSendable(credential)) {
    throw new UserError(
      "The credential must be printable ASCII without spaces. Check --credential-file or LATCHKEY_CREDENTIAL.",
    );
  }
  return credential;
}

function readSetting(setting: string, file: string | undefined): Buffer | undefined {
  try {
    return file === undefined ? undefined : readFileSync(file);
  } catch (cause) {
    throw new UserError(`${setting} must be a readable file, and ${file} is not.`, { cause });
  }
}

function storedCredential(dataDir: string, role: Role): string {
  const { operatorKeyFile, firstKeyFile } = createCredentials(dataDir);
  const file = role === "operator" ? operatorKeyFile : firstKeyFile;
  if (existsSync(file)) return readFileSync(file, "utf8").trim();
  const needed = role === "operator" ? "the operator credential" : "an API key";
  throw new UserError(`This command needs ${needed}. Use --credential-file, or set LATCHKEY_CREDENTIAL.`);
}
