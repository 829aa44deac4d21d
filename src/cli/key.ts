import { readFileSync } from "node:fs";
import { Command, Option } from "commander";
import type { Key } from "../../gen/latchkey/v1/key_pb.js";
import {
  CreateKeyResponseSchema,
  DeleteKeyResponseSchema,
  GetKeyResponseSchema,
  GetKeyUsageResponseSchema,
  ListKeysResponseSchema,
  RerollKeyResponseSchema,
  UpdateCreditsResponseSchema,
  UpdateKeyResponseSchema,
  VerificationCode,
  VerifyKeyResponseSchema,
  WhoamiResponseSchema,
} from "../../gen/latchkey/v1/keys_service_pb.js";
import type { ClientConfig } from "../config.js";
import {
  type CreateFlags,
  callAction,
  collect,
  count,
  createCommand,
  createOptions,
  listCommand,
  remoteCommand,
} from "./command.js";
import { type ConnectionFlags, credentialOf } from "./connection.js";
import { NotValid } from "./exit-codes.js";
import { importCommand } from "./key-import.js";
import {
  clear,
  clearHelp,
  creditsOf,
  type KeySettingsFlags,
  type KeyUpdateFlags,
  keyColumns,
  keyDetails,
  ownerOf,
  refuseSetAndCleared,
  toUpdate,
  withKeySettings,
} from "./key-settings.js";
import {
  periodOf,
  type RateLimitCheckFlag,
  rateLimitCheck,
  showRateLimitState,
  showRefill,
  type UsageFlags,
  usageColumns,
  withUsageFlags,
} from "./limit-text.js";
import { type Columns, writeNextPageHint, writeRecord, writeTable } from "./output.js";

/** A new key, with its secret. */
export const secretColumns: Columns<{ keyId: string; key: string }> = {
  "KEY ID": ({ keyId }) => keyId,
  KEY: ({ key }) => key,
};

interface NewKeyFlags extends CreateFlags, KeySettingsFlags {
  readonly prefix?: string;
  readonly api?: string;
  readonly disabled?: boolean;
}

interface ListFlags {
  readonly limit?: number;
  readonly cursor?: string;
  readonly externalId?: string;
  readonly state?: "enabled" | "disabled";
  readonly api?: string;
}

/** `latchkey key …`. It uses a key of the workspace. */
export function keyCommand(config: ClientConfig): Command {
  const role = "key" as const;
  const showKey = ({ key }: { key?: Key }) => key && writeRecord(key, keyDetails);

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
    .description("create, list, show, update, verify, import and delete the keys of a workspace")
    .exitOverride()
    .addCommand(
      withKeySettings(createCommand("create", "create a key; its secret is shown only once"))
        .option("--prefix <prefix>", "the prefix of the secret")
        .option("--api <apiId>", "the API that the key belongs to")
        .option("--disabled", "create the key disabled")
        .action(
          callAction(config, {
            role,
            response: CreateKeyResponseSchema,
            call: ({ keys }, flags: NewKeyFlags) =>
              keys.createKey(
                {
                  name: flags.name,
                  prefix: flags.prefix,
                  owner: ownerOf(flags),
                  scopes: flags.scope,
                  permissions: flags.permission,
                  roles: flags.role,
                  apiId: flags.api,
                  ratelimits: flags.ratelimit,
                  credits: creditsOf(flags),
                  meta: flags.meta,
                  expires: flags.expires,
                  enabled: !flags.disabled,
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
        .addOption(new Option("--state <state>", "only keys in this state").choices(["enabled", "disabled"]))
        .option("--api <apiId>", "only keys of this API")
        .action(
          callAction(config, {
            role,
            response: ListKeysResponseSchema,
            call: ({ keys }, { limit, cursor, externalId, state, api }: ListFlags) =>
              keys.listKeys({ limit, cursor, externalId, enabled: state && state === "enabled", apiId: api }),
            show: ({ keys, pagination }) => {
              writeTable(keys, keyColumns);
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
    .addCommand(
      remoteCommand("whoami", "show the key that the command uses; it needs the scope keys.read")
        .option("--stdin", "show the key whose secret is on standard input instead")
        .action(
          callAction(config, {
            role,
            response: WhoamiResponseSchema,
            call: ({ keys }, { stdin, ...flags }: ConnectionFlags & { stdin?: boolean }) =>
              keys.whoami({ key: stdin ? readSecret() : credentialOf(flags, config, role) }),
            show: showKey,
          }),
        ),
    )
    .addCommand(
      withKeySettings(remoteCommand("update", "change a key; settings without a flag stay as they are"))
        .argument("<keyId>")
        .option("--clear <setting>", clearHelp, clear)
        .hook("preAction", refuseSetAndCleared)
        .action(
          callAction(config, {
            role,
            response: UpdateKeyResponseSchema,
            call: ({ keys }, flags: KeyUpdateFlags, keyId) => keys.updateKey(toUpdate(keyId, flags)),
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
      createCommand("credits", "change the credits of a key, and show them")
        .argument("<keyId>")
        .addOption(creditsOption("--set <count>", "the new number").argParser(count))
        .addOption(creditsOption("--increment <count>", "how many to add").argParser(count))
        .addOption(creditsOption("--decrement <count>", "how many to remove; at least 0 are left").argParser(count))
        .addOption(creditsOption("--unlimited", "the key needs no credits any more"))
        .action(
          callAction(config, {
            role,
            response: UpdateCreditsResponseSchema,
            call: ({ keys }, flags: CreateFlags & CreditsFlags, keyId) =>
              keys.updateCredits({ keyId, ...creditsChange(flags) }, createOptions(flags)),
            show: ({ credits }) =>
              writeRecord(credits, {
                CREDITS: (found) => found?.remaining ?? "unlimited",
                REFILL: (found) => found && showRefill(found),
              }),
          }),
        ),
    )
    .addCommand(
      withUsageFlags(remoteCommand("usage", "show how often a key was verified").argument("<keyId>")).action(
        callAction(config, {
          role,
          response: GetKeyUsageResponseSchema,
          call: ({ keys }, flags: UsageFlags, keyId) =>
            keys.getKeyUsage({ keyId, period: periodOf(flags), tag: flags.tag }),
          show: ({ usage }) => writeTable(usage, usageColumns),
        }),
      ),
    )
    .addCommand(importCommand(config))
    .addCommand(
      remoteCommand("verify", "verify the key on standard input; the exit code is 0 only if it is valid")
        .option("--permissions <query>", "the permissions that the key must have, such as `a AND (b OR c)`")
        .option("--cost <count>", "how many credits the verification spends (default: 1)", count)
        .option(
          "--ratelimit <limit>",
          "a rate limit that the verification must keep to: its name, or name=limit/duration; can be given several times",
          rateLimitCheck,
        )
        .option("--tag <tag>", "a tag under which the verification is counted; can be given several times", collect)
        .action(
          callAction(config, {
            role,
            response: VerifyKeyResponseSchema,
            call: ({ keys }, { permissions, cost, ratelimit, tag }: VerifyFlags) =>
              keys.verifyKey({
                key: readSecret(),
                permissions,
                credits: cost === undefined ? undefined : { cost: BigInt(cost) },
                ratelimits: ratelimit,
                tags: tag,
              }),
            show: (result) =>
              writeRecord(result, {
                CODE: ({ code }) => VerificationCode[code],
                "KEY ID": ({ keyId }) => keyId,
                NAME: ({ name }) => name,
                PERMISSIONS: ({ permissions }) => permissions,
                ROLES: ({ roles }) => roles,
                IDENTITY: ({ identity }) => identity?.externalId,
                EXPIRES: ({ expires }) => expires,
                CREDITS: ({ credits }) => credits,
                "RATE LIMITS": ({ ratelimits }) => ratelimits.map(showRateLimitState),
              }),
            afterPrint: ({ valid }) => {
              if (!valid) throw new NotValid();
            },
          }),
        ),
    );
}

/** Reads a secret from standard input. */
function readSecret(): string {
  return readFileSync(0, "utf8").trim();
}

interface VerifyFlags {
  readonly permissions?: string;
  readonly cost?: number;
  readonly ratelimit?: RateLimitCheckFlag[];
  readonly tag?: string[];
}

interface CreditsFlags {
  readonly set?: number;
  readonly increment?: number;
  readonly decrement?: number;
  readonly unlimited?: boolean;
}

const creditsOperations = ["set", "increment", "decrement", "unlimited"] as const;

/** Only one of these flags can be given. */
function creditsOption(flags: string, description: string): Option {
  return new Option(flags, description).conflicts(
    [...creditsOperations].filter((name) => !flags.startsWith(`--${name}`)),
  );
}

/** The operation of the only flag, and its value. Without one, the service refuses the request. */
function creditsChange(flags: CreditsFlags): { operation: string; value?: bigint } {
  if (flags.unlimited) return { operation: "set" };
  const operation = creditsOperations.find((name) => flags[name] !== undefined) ?? "";
  const value = flags[operation as "set"];
  return { operation, ...(value !== undefined && { value: BigInt(value) }) };
}
