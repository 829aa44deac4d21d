import type { DescMessage, JsonObject, MessageShape } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import { Command, InvalidArgumentError } from "commander";
import type { ProtobufClient } from "../client/protobuf.js";
import type { ClientConfig } from "../config.js";
import { type ConnectionFlags, connect, type Role } from "./connection.js";
import { writeJson } from "./output.js";

/** The flags of every command that calls the service. */
interface CommonFlags extends ConnectionFlags {
  readonly json?: boolean;
}

/** A command with the common flags. `callAction` defines its action. */
export function remoteCommand(name: string, description: string): Command {
  return new Command(name)
    .description(description)
    .exitOverride()
    .option("--address <host:port>", "the service's gRPC address (default: LATCHKEY_ADDRESS, else 127.0.0.1:50051)")
    .option(
      "--credential-file <file>",
      "a file with the credential (default: LATCHKEY_CREDENTIAL, else the credential stored in DATA_DIR)",
    )
    .option("--json", "print JSON, for scripts");
}

/** A command that lists resources. */
export function listCommand(description: string): Command {
  return remoteCommand("list", description)
    .option("--limit <count>", "the maximum number of results, 1 to 100", pageSize)
    .option("--cursor <cursor>", "the cursor of the previous page");
}

/** The flag of a command that creates a resource. */
export interface CreateFlags {
  readonly idempotencyKey?: string;
}

/** A command that creates a resource, once per idempotency key. */
export function createCommand(name: string, description: string): Command {
  return remoteCommand(name, description).option(
    "--idempotency-key <key>",
    "an idempotency key of your choice; a retry with it returns the first response",
  );
}

/** The call options of a call that creates a resource. */
export function createOptions({ idempotencyKey }: CreateFlags): CallOptions {
  return idempotencyKey === undefined ? {} : { headers: { "idempotency-key": idempotencyKey } };
}

/** One call of the service, and how its response is printed. Operands are texts, unless the command parses them. */
export interface RemoteCall<Flags, Schema extends DescMessage, Operands extends unknown[] = string[]> {
  readonly role: Role;
  readonly response: Schema;
  call(client: ProtobufClient, flags: Flags, ...operands: Operands): Promise<MessageShape<Schema>>;
  /** Prints the response for people. Scripts get the whole response as JSON. */
  show(response: MessageShape<Schema>): void;
  /** Runs after the response was printed. */
  afterPrint?(response: MessageShape<Schema>): void;
}

/** The action of a command that makes this call. Commander passes the operands, then the flags, then the command. */
export function callAction<Flags, Schema extends DescMessage, Operands extends unknown[] = string[]>(
  config: ClientConfig,
  remote: RemoteCall<Flags, Schema, Operands>,
) {
  return async (...args: unknown[]): Promise<void> => {
    const flags = args.at(-2) as Flags & CommonFlags;
    const operands = args.slice(0, -2) as Operands;
    const response = await remote.call(connect(flags, config, remote.role), flags, ...operands);
    if (flags.json) writeJson(remote.response, response);
    else remote.show(response);
    remote.afterPrint?.(response);
  };
}

export function count(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError("It must be an integer.");
  return exact(Number(text));
}

/** Refuses a number that is not exact. All others fit in the 64 bits of a request's integer. */
export function exact(number: number): number {
  if (Number.isSafeInteger(number)) return number;
  throw new InvalidArgumentError(`A number must be at most ${Number.MAX_SAFE_INTEGER}.`);
}

/** In a request, it has only 32 bits. */
function pageSize(text: string): number {
  const limit = count(text);
  if (limit < 1 || limit > 100) throw new InvalidArgumentError("It must be from 1 to 100.");
  return limit;
}

export function jsonObject(text: string): JsonObject {
  try {
    const value = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  } catch {
    // reported below
  }
  throw new InvalidArgumentError('It must be a JSON object, such as {"plan":"pro"}.');
}

/** For flags that can be given several times. */
export function collect(value: string, collected: string[] = []): string[] {
  return [...collected, value];
}
