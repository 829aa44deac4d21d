import type { DescMessage, JsonObject, MessageShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { CallOptions } from "@connectrpc/connect";
import { Command, InvalidArgumentError } from "commander";
import type { LatchkeyClient } from "../client/client.js";
import type { ClientConfig } from "../config.js";
import { connect, type Role } from "./connection.js";
import { writeJson } from "./output.js";

/** The flags that every command which calls a service has. */
interface CommonFlags {
  readonly address?: string;
  readonly credentialFile?: string;
  readonly json?: boolean;
}

/** A command with its flags; what it does is told by `calls`. */
export function remoteCommand(name: string, description: string): Command {
  return new Command(name)
    .description(description)
    .exitOverride()
    .option("--address <host:port>", "the service's gRPC address (LATCHKEY_ADDRESS, else 127.0.0.1:50051)")
    .option(
      "--credential-file <file>",
      "what holds the credential (LATCHKEY_CREDENTIAL, else the one kept in DATA_DIR)",
    )
    .option("--json", "write JSON, for scripts");
}

/** A command that lists. */
export function listCommand(description: string): Command {
  return remoteCommand("list", description)
    .option("--limit <count>", "how many at most, 1 to 100", count)
    .option("--cursor <cursor>", "go on after the page that gave this cursor");
}

/** The flag of a command that creates something. */
export interface CreateFlags {
  readonly idempotencyKey?: string;
}

/** A command that creates something, once for each key that is given. */
export function createCommand(name: string, description: string): Command {
  return remoteCommand(name, description).option(
    "--idempotency-key <key>",
    "of your choice; when run again with it within 24 hours, the command gives the first answer again",
  );
}

/** What a call that creates something is sent with. */
export function createOptions({ idempotencyKey }: CreateFlags): CallOptions {
  return idempotencyKey === undefined ? {} : { headers: { "idempotency-key": idempotencyKey } };
}

/** One call of the service, and how its answer is shown. */
export interface RemoteCall<Flags, Schema extends DescMessage> {
  readonly role: Role;
  readonly response: Schema;
  call(client: LatchkeyClient, flags: Flags, ...operands: string[]): Promise<MessageShape<Schema>>;
  /** For people; scripts get the whole response as JSON. */
  show(response: MessageShape<Schema>): void;
  /** What follows once the answer was written. */
  conclude?(response: MessageShape<Schema>): void;
}

/** The action of a command that makes this call. Commander hands over the operands, then the flags, then the command. */
export function calls<Flags, Schema extends DescMessage>(config: ClientConfig, remote: RemoteCall<Flags, Schema>) {
  return async (...given: unknown[]): Promise<void> => {
    const flags = given.at(-2) as Flags & CommonFlags;
    const operands = given.slice(0, -2) as string[];
    const response = await remote.call(connect(flags, config, remote.role), flags, ...operands);
    if (flags.json) writeJson(remote.response, response);
    else remote.show(response);
    remote.conclude?.(response);
  };
}

export function count(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError("It must be a whole number.");
  return Number(text);
}

export function jsonObject(text: string): JsonObject {
  try {
    const value = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  } catch {
    // said below
  }
  throw new InvalidArgumentError('It must be a JSON object, such as {"plan":"pro"}.');
}

export function time(text: string): Timestamp {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) throw new InvalidArgumentError("It must be a time, such as 2030-01-31T12:00:00Z.");
  return timestampFromDate(date);
}

/** For flags that can be given several times. */
export function collect(value: string, collected: string[] = []): string[] {
  return [...collected, value];
}
