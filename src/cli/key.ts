import { readFileSync } from "node:fs";
import type { JsonObject } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { Command } from "commander";
import type { Key } from "../../gen/latchkey/v1/key_pb.js";
import {
  CreateKeyResponseSchema,
  DeleteKeyResponseSchema,
  GetKeyResponseSchema,
  ListKeysResponseSchema,
  RerollKeyResponseSchema,
  UpdateKeyResponseSchema,
  VerificationCode,
  VerifyKeyResponseSchema,
} from "../../gen/latchkey/v1/keys_service_pb.js";
import type { ClientConfig } from "../config.js";
import {
  type CreateFlags,
  calls,
  collect,
  count,
  createCommand,
  createOptions,
  jsonObject,
  listCommand,
  remoteCommand,
  time,
} from "./command.js";
import { NotValid } from "./exit-codes.js";
import { type Columns, writeMore, writeRecord, writeTable } from "./output.js";

const columns: Columns<Key> = {
  ID: ({ keyId }) => keyId,
  START: ({ start }) => start,
  NAME: ({ name }) => name,
  STATE: ({ enabled }) => (enabled ? "enabled" : "disabled"),
  SCOPES: ({ scopes }) => scopes,
  PERMISSIONS: ({ permissions }) => permissions,
  IDENTITY: ({ identity }) => identity?.externalId,
  EXPIRES: ({ expires }) => expires,
  "LAST USED": ({ lastUsedAt }) => lastUsedAt,
  CREATED: ({ createdAt }) => createdAt,
};

/** A new key, with its secret. */
export const secretColumns: Columns<{ keyId: string; key: string }> = {
  "KEY ID": ({ keyId }) => keyId,
  KEY: ({ key }) => key,
};

interface NewKeyFlags extends CreateFlags {
  readonly name?: string;
  readonly prefix?: string;
  readonly externalId?: string;
  readonly identityId?: string;
  readonly scope?: string[];
  readonly permission?: string[];
  readonly meta?: JsonObject;
  readonly expires?: Timestamp;
  readonly disabled?: boolean;
}

interface ListFlags {
  readonly limit?: number;
  readonly cursor?: string;
  readonly externalId?: string;
  readonly state?: "enabled" | "disabled";
}

/** `latchkey key …`, with a key of the workspace. */
export function keyCommand(config: ClientConfig): Command {
  const role = "key" as const;
  const showKey = ({ key }: { key?: Key }) => key && writeRecord(key, columns);

  /** `enable` and `disable` differ in one word. */
  const switchCommand = (name: string, enabled: boolean) =>
    remoteCommand(name, `${name} a key, from now on`)
      .argument("<keyId>")
      .action(
        calls(config, {
          role,
          response: UpdateKeyResponseSchema,
          call: ({ keys }, _flags, keyId) => keys.updateKey({ keyId, enabled }),
          show: showKey,
        }),
      );

  return new Command("key")
    .description("create, list, change and verify the keys of a workspace")
    .exitOverride()
    .addCommand(
      createCommand("create", "create a key, which is shown once")
        .option("--name <name>", "what people call it")
        .option("--prefix <prefix>", "what the secret begins with")
        .option("--external-id <id>", "the identity that owns it, made unless it is there")
        .option("--identity-id <id>", "the identity that owns it")
        .option("--scope <name>", "what it may do with this service; can be given several times", collect)
        .option("--permission <name>", "what it may do in your own application; can be given several times", collect)
        .option("--meta <json>", "any JSON object", jsonObject)
        .option("--expires <time>", "when it ends", time)
        .option("--disabled", "create it disabled")
        .action(
          calls(config, {
            role,
            response: CreateKeyResponseSchema,
            call: ({ keys }, { scope = [], permission = [], disabled, ...flags }: NewKeyFlags) =>
              keys.createKey(
                {
                  name: flags.name,
                  prefix: flags.prefix,
                  owner: ownerOf(flags),
                  scopes: scope,
                  permissions: permission,
                  meta: flags.meta,
                  expires: flags.expires,
                  enabled: !disabled,
                },
                createOptions(flags),
              ),
            show: (created) => writeRecord(created, secretColumns),
          }),
        ),
    )
    .addCommand(
      listCommand("list the keys, newest last")
        .option("--external-id <id>", "only those of this identity")
        .option("--state <state>", "only those that are `enabled`, or `disabled`")
        .action(
          calls(config, {
            role,
            response: ListKeysResponseSchema,
            call: ({ keys }, { limit, cursor, externalId, state }: ListFlags) =>
              keys.listKeys({ limit, cursor, externalId, enabled: state && state === "enabled" }),
            show: ({ keys, pagination }) => {
              writeTable(keys, columns);
              writeMore(pagination);
            },
          }),
        ),
    )
    .addCommand(
      remoteCommand("get", "show one key")
        .argument("<keyId>")
        .action(
          calls(config, {
            role,
            response: GetKeyResponseSchema,
            call: ({ keys }, _flags, keyId) => keys.getKey({ keyId }),
            show: showKey,
          }),
        ),
    )
    .addCommand(switchCommand("disable", false))
    .addCommand(switchCommand("enable", true))
    .addCommand(
      createCommand("reroll", "replace a key by another with the same settings, which is shown once")
        .argument("<keyId>")
        .option("--grace <ms>", "how many milliseconds the old secret goes on", count)
        .action(
          calls(config, {
            role,
            response: RerollKeyResponseSchema,
            call: ({ keys }, { grace = 0, ...flags }: CreateFlags & { grace?: number }, keyId) =>
              keys.rerollKey({ keyId, expiration: BigInt(grace) }, createOptions(flags)),
            show: (rerolled) => writeRecord(rerolled, secretColumns),
          }),
        ),
    )
    .addCommand(
      remoteCommand("delete", "delete a key for good")
        .argument("<keyId>")
        .action(
          calls(config, {
            role,
            response: DeleteKeyResponseSchema,
            call: ({ keys }, _flags, keyId) => keys.deleteKey({ keyId }),
            show: () => process.stdout.write("deleted\n"),
          }),
        ),
    )
    .addCommand(
      remoteCommand("verify", "verify the key that standard input holds; the exit code is 0 only if it is valid")
        .option("--permissions <query>", "the permissions that it must hold, such as `a AND (b OR c)`")
        .action(
          calls(config, {
            role,
            response: VerifyKeyResponseSchema,
            call: ({ keys }, { permissions }: { permissions?: string }) =>
              keys.verifyKey({ key: readFileSync(0, "utf8").trim(), permissions }),
            show: (verdict) =>
              writeRecord(verdict, {
                CODE: ({ code }) => VerificationCode[code],
                "KEY ID": ({ keyId }) => keyId,
                NAME: ({ name }) => name,
                PERMISSIONS: ({ permissions }) => permissions,
                IDENTITY: ({ identity }) => identity?.externalId,
                EXPIRES: ({ expires }) => expires,
              }),
            conclude: ({ valid }) => {
              if (!valid) throw new NotValid();
            },
          }),
        ),
    );
}

function ownerOf({ externalId, identityId }: NewKeyFlags) {
  if (identityId !== undefined) return { case: "identityId", value: identityId } as const;
  return externalId === undefined ? undefined : ({ case: "externalId", value: externalId } as const);
}
