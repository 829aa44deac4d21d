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
  callAction,
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
import { type Columns, writeNextPageHint, writeRecord, writeTable } from "./output.js";

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

/** `latchkey key …`. It uses a key of the workspace. */
export function keyCommand(config: ClientConfig): Command {
  const role = "key" as const;
  const showKey = ({ key }: { key?: Key }) => key && writeRecord(key, columns);

  const enabledCommand = (name: string, enabled: boolean) =>
    remoteCommand(name, `${name} a key`)
      .argument("<keyId>")
      .action(
        callAction(config, {
          role,
          response: UpdateKeyResponseSchema,
          call: ({ keys }, _flags, keyId) => keys.updateKey({ keyId, enabled }),
          show: showKey,
        }),
      );

  return new Command("key")
    .description("create, list, update, verify and delete the keys of a workspace")
    .exitOverride()
    .addCommand(
      createCommand("create", "create a key; its secret is shown only once")
        .option("--name <name>", "a name for people")
        .option("--prefix <prefix>", "the prefix of the secret")
        .option("--external-id <id>", "the identity that owns the key; it is created if it does not exist")
        .option("--identity-id <id>", "the identity that owns the key")
        .option("--scope <name>", "a scope: what the key may do with this service; can be given several times", collect)
        .option(
          "--permission <name>",
          "a permission: what the key may do in your own application; can be given several times",
          collect,
        )
        .option("--meta <json>", "any JSON object", jsonObject)
        .option("--expires <time>", "when the key expires", time)
        .option("--disabled", "create the key disabled")
        .action(
          callAction(config, {
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
        .option("--external-id <id>", "only keys of this identity")
        .option("--state <state>", "only keys in this state: `enabled` or `disabled`")
        .action(
          callAction(config, {
            role,
            response: ListKeysResponseSchema,
            call: ({ keys }, { limit, cursor, externalId, state }: ListFlags) =>
              keys.listKeys({ limit, cursor, externalId, enabled: state && state === "enabled" }),
            show: ({ keys, pagination }) => {
              writeTable(keys, columns);
              writeNextPageHint(pagination);
            },
          }),
        ),
    )
    .addCommand(
      remoteCommand("get", "show one key")
        .argument("<keyId>")
        .action(
          callAction(config, {
            role,
            response: GetKeyResponseSchema,
            call: ({ keys }, _flags, keyId) => keys.getKey({ keyId }),
            show: showKey,
          }),
        ),
    )
    .addCommand(enabledCommand("disable", false))
    .addCommand(enabledCommand("enable", true))
    .addCommand(
      createCommand("reroll", "replace a key by another with the same settings; its secret is shown only once")
        .argument("<keyId>")
        .option("--grace <ms>", "for how many milliseconds the old secret stays valid", count)
        .action(
          callAction(config, {
            role,
            response: RerollKeyResponseSchema,
            call: ({ keys }, { grace = 0, ...flags }: CreateFlags & { grace?: number }, keyId) =>
              keys.rerollKey({ keyId, expiration: BigInt(grace) }, createOptions(flags)),
            show: (rerolled) => writeRecord(rerolled, secretColumns),
          }),
        ),
    )
    .addCommand(
      remoteCommand("delete", "delete a key permanently")
        .argument("<keyId>")
        .action(
          callAction(config, {
            role,
            response: DeleteKeyResponseSchema,
            call: ({ keys }, _flags, keyId) => keys.deleteKey({ keyId }),
            show: () => process.stdout.write("deleted\n"),
          }),
        ),
    )
    .addCommand(
      remoteCommand("verify", "verify the key on standard input; the exit code is 0 only if it is valid")
        .option("--permissions <query>", "the permissions that the key must have, such as `a AND (b OR c)`")
        .action(
          callAction(config, {
            role,
            response: VerifyKeyResponseSchema,
            call: ({ keys }, { permissions }: { permissions?: string }) =>
              keys.verifyKey({ key: readFileSync(0, "utf8").trim(), permissions }),
            show: (result) =>
              writeRecord(result, {
                CODE: ({ code }) => VerificationCode[code],
                "KEY ID": ({ keyId }) => keyId,
                NAME: ({ name }) => name,
                PERMISSIONS: ({ permissions }) => permissions,
                IDENTITY: ({ identity }) => identity?.externalId,
                EXPIRES: ({ expires }) => expires,
              }),
            afterPrint: ({ valid }) => {
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
