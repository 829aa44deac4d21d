import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import { FieldMaskSchema, type Timestamp } from "@bufbuild/protobuf/wkt";
import { type Command, InvalidArgumentError, Option } from "commander";
import type { CreditsSchema } from "../../gen/latchkey/v1/credits_pb.js";
import type { Key } from "../../gen/latchkey/v1/key_pb.js";
import { UpdateKeyRequestSchema } from "../../gen/latchkey/v1/keys_service_pb.js";
import { collect, count, jsonObject } from "./command.js";
import {
  type RateLimitFlag,
  type RefillFlag,
  rateLimit,
  rateLimitHelp,
  refill,
  refillHelp,
  showRateLimit,
  showRefill,
} from "./limit-text.js";
import type { Columns } from "./output.js";
import { expiry } from "./time-text.js";

/** The columns of a list of keys. */
export const keyColumns: Columns<Key> = {
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

/** The lines of one key. */
export const keyDetails: Columns<Key> = {
  ...keyColumns,
  API: ({ apiId }) => apiId,
  ROLES: ({ roles }) => roles,
  "RATE LIMITS": ({ ratelimits }) => ratelimits.map(showRateLimit),
  CREDITS: ({ credits }) => credits?.remaining,
  REFILL: ({ credits }) => credits && showRefill(credits),
};

/** The flags of a key's settings, for a new key and for a change. */
export interface KeySettingsFlags {
  readonly name?: string;
  readonly externalId?: string;
  readonly identityId?: string;
  readonly scope?: string[];
  readonly permission?: string[];
  readonly role?: string[];
  readonly ratelimit?: RateLimitFlag[];
  readonly credits?: number;
  readonly refill?: RefillFlag;
  readonly meta?: JsonObject;
  readonly expires?: Timestamp;
}

/** Adds the flags of a key's settings. */
export function withKeySettings(command: Command): Command {
  return command
    .option("--name <name>", "a name for people")
    .option("--external-id <id>", "the identity that owns the key; it is created if it does not exist")
    .addOption(new Option("--identity-id <id>", "the identity that owns the key").conflicts("externalId"))
    .option("--scope <name>", "a scope: what the key may do with this service; can be given several times", collect)
    .option(
      "--permission <name>",
      "a permission: what the key may do in your own application; can be given several times",
      collect,
    )
    .option("--role <name>", "a role, whose permissions the key has; can be given several times", collect)
    .option("--ratelimit <limit>", rateLimitHelp, rateLimit)
    .option("--credits <count>", "how many credits the key has (default: it needs none)", count)
    .option("--refill <refill>", refillHelp, refill)
    .option("--meta <json>", "any JSON object", jsonObject)
    .option("--expires <time>", "when the key expires: a duration from now such as `30d`, or a time", expiry);
}

/** The owner of a key in a request; undefined for none. */
export function ownerOf({ externalId, identityId }: KeySettingsFlags) {
  if (identityId !== undefined) return { case: "identityId", value: identityId } as const;
  return externalId === undefined ? undefined : ({ case: "externalId", value: externalId } as const);
}

/** The credits of a key in a request; undefined if no flag sets them. */
export function creditsOf({ credits, refill }: KeySettingsFlags): MessageInitShape<typeof CreditsSchema> | undefined {
  if (credits === undefined && refill === undefined) return undefined;
  return { remaining: credits === undefined ? undefined : BigInt(credits), refill };
}

/** The settings that can be cleared, and their paths in an update mask. */
const clearable: Readonly<Record<string, string>> = {
  name: "name",
  identity: "identity_id",
  scopes: "scopes",
  permissions: "permissions",
  roles: "roles",
  ratelimits: "ratelimits",
  credits: "credits",
  refill: "credits.refill",
  meta: "meta",
  expires: "expires",
};

/** The help of a flag that names settings to clear. */
export const clearHelp = `a setting to clear: ${Object.keys(clearable).join(", ")}; can be given several times`;

/** Parses the name of a setting that can be cleared, for a flag that can be given several times. */
export function clear(text: string, collected: string[] = []): string[] {
  if (!Object.hasOwn(clearable, text)) {
    throw new InvalidArgumentError(`It must be one of ${Object.keys(clearable).join(", ")}.`);
  }
  return [...collected, text];
}

/** The flags of a command that changes a key. */
export interface KeyUpdateFlags extends KeySettingsFlags {
  readonly clear?: string[];
}

/** Ends a command with wrong usage if it both sets and clears a setting: the service would do only one of both. */
export function refuseSetAndCleared(command: Command): void {
  const flags = command.opts<KeyUpdateFlags>();
  const changed = changedPaths(flags).map((path) => (path === "external_id" ? clearable["identity"] : path));
  for (const name of flags.clear ?? []) {
    const isSet = changed.some((path) => `${path}.`.startsWith(`${clearable[name]}.`));
    if (isSet) command.error(`error: option '--clear ${name}' cannot be used with a flag that sets ${name}`);
  }
}

/** The paths, in an update mask, of the settings that have a flag. */
function changedPaths(flags: KeySettingsFlags): string[] {
  const { name, scope, permission, role, ratelimit, credits, refill, meta, expires } = flags;
  const owner = ownerOf(flags);
  const given: Record<string, unknown> = {
    name,
    [owner?.case === "externalId" ? "external_id" : "identity_id"]: owner,
    scopes: scope,
    permissions: permission,
    roles: role,
    ratelimits: ratelimit,
    "credits.remaining": credits,
    "credits.refill": refill,
    meta,
    expires,
  };
  return Object.keys(given).filter((path) => given[path] !== undefined);
}

/** The request that changes the settings that have a flag, and clears others. */
export function toUpdate(keyId: string, flags: KeyUpdateFlags) {
  const cleared = (flags.clear ?? []).map((name) => clearable[name] as string);
  return create(UpdateKeyRequestSchema, {
    keyId,
    name: flags.name,
    owner: ownerOf(flags),
    scopes: flags.scope,
    permissions: flags.permission,
    roles: flags.role,
    ratelimits: flags.ratelimit,
    credits: creditsOf(flags),
    meta: flags.meta,
    expires: flags.expires,
    updateMask: create(FieldMaskSchema, { paths: [...changedPaths(flags), ...cleared] }),
  });
}
