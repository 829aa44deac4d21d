import type { JsonObject } from "@bufbuild/protobuf";
import { Command, Option } from "commander";
import {
  CreateIdentityResponseSchema,
  DeleteIdentityResponseSchema,
  GetIdentityResponseSchema,
  GetIdentityUsageResponseSchema,
  ListIdentitiesResponseSchema,
  UpdateIdentityResponseSchema,
} from "../../gen/latchkey/v1/identities_service_pb.js";
import type { Identity } from "../../gen/latchkey/v1/identity_pb.js";
import type { ClientConfig } from "../config.js";
import {
  type CreateFlags,
  callAction,
  createCommand,
  createOptions,
  jsonObject,
  listCommand,
  remoteCommand,
} from "./command.js";
import {
  periodOf,
  type RateLimitFlag,
  rateLimit,
  rateLimitHelp,
  showRateLimit,
  type UsageFlags,
  usageColumns,
  withUsageFlags,
} from "./limit-text.js";
import { type Columns, writeNextPageHint, writeRecord, writeTable } from "./output.js";

const columns: Columns<Identity> = {
  ID: ({ identityId }) => identityId,
  "EXTERNAL ID": ({ externalId }) => externalId,
  META: ({ meta }) => meta,
  CREATED: ({ createdAt }) => createdAt,
};

const details: Columns<Identity> = {
  ...columns,
  "RATE LIMITS": ({ ratelimits }) => ratelimits.map(showRateLimit),
};

interface SettingsFlags {
  readonly meta?: JsonObject;
  readonly ratelimit?: RateLimitFlag[];
}

interface UpdateFlags extends SettingsFlags {
  readonly clearRatelimits?: boolean;
}

/** `latchkey identity …`. It uses a key of the workspace. */
export function identityCommand(config: ClientConfig): Command {
  const role = "key" as const;
  const showIdentity = ({ identity }: { identity?: Identity }) => identity && writeRecord(identity, details);
  const byEitherId = (value: string) => ({ case: "identity", value }) as const;

  return new Command("identity")
    .description("create, list, update and delete the identities of a workspace, and show their usage")
    .exitOverride()
    .addCommand(
      createCommand("create", "create an identity")
        .argument("<externalId>", "your own identifier of the identity")
        .option("--meta <json>", "any JSON object", jsonObject)
        .option("--ratelimit <limit>", rateLimitHelp, rateLimit)
        .action(
          callAction(config, {
            role,
            response: CreateIdentityResponseSchema,
            call: ({ identities }, { meta, ratelimit, ...flags }: CreateFlags & SettingsFlags, externalId) =>
              identities.createIdentity({ externalId, meta, ratelimits: ratelimit }, createOptions(flags)),
            show: (created) => writeRecord(created, { ID: ({ identityId }) => identityId }),
          }),
        ),
    )
    .addCommand(
      listCommand("list the identities, newest last")
        .option("--search <text>", "only identities whose externalId contains this text")
        .action(
          callAction(config, {
            role,
            response: ListIdentitiesResponseSchema,
            call: ({ identities }, flags: { limit?: number; cursor?: string; search?: string }) =>
              identities.listIdentities({ limit: flags.limit, cursor: flags.cursor, search: flags.search }),
            show: ({ identities, pagination }) => {
              writeTable(identities, columns);
              writeNextPageHint(pagination);
            },
          }),
        ),
    )
    .addCommand(
      remoteCommand("get", "show one identity")
        .argument("<identity>", "its identityId or externalId")
        .action(
          callAction(config, {
            role,
            response: GetIdentityResponseSchema,
            call: ({ identities }, _flags, identity) => identities.getIdentity({ reference: byEitherId(identity) }),
            show: showIdentity,
          }),
        ),
    )
    .addCommand(
      remoteCommand("update", "replace the meta of an identity, or the rate limits that its keys share")
        .argument("<identity>", "its identityId or externalId")
        .option("--meta <json>", "any JSON object", jsonObject)
        .option("--ratelimit <limit>", rateLimitHelp, rateLimit)
        .addOption(new Option("--clear-ratelimits", "remove all rate limits").conflicts("ratelimit"))
        .action(
          callAction(config, {
            role,
            response: UpdateIdentityResponseSchema,
            call: ({ identities }, { meta, ratelimit, clearRatelimits }: UpdateFlags, identity) =>
              identities.updateIdentity({
                reference: byEitherId(identity),
                meta,
                ratelimits: ratelimit,
                updateMask: {
                  paths: [...(meta ? ["meta"] : []), ...(ratelimit || clearRatelimits ? ["ratelimits"] : [])],
                },
              }),
            show: showIdentity,
          }),
        ),
    )
    .addCommand(
      withUsageFlags(
        remoteCommand("usage", "show how often the keys of an identity were verified").argument(
          "<identity>",
          "its identityId or externalId",
        ),
      ).action(
        callAction(config, {
          role,
          response: GetIdentityUsageResponseSchema,
          call: ({ identities }, flags: UsageFlags, identity) =>
            identities.getIdentityUsage({
              reference: byEitherId(identity),
              period: periodOf(flags),
              tag: flags.tag,
            }),
          show: ({ usage }) => writeTable(usage, usageColumns),
        }),
      ),
    )
    .addCommand(
      remoteCommand("delete", "delete an identity; its keys keep working without it")
        .argument("<identity>", "its identityId or externalId")
        .action(
          callAction(config, {
            role,
            response: DeleteIdentityResponseSchema,
            call: ({ identities }, _flags, identity) => identities.deleteIdentity({ reference: byEitherId(identity) }),
            show: () => process.stdout.write("deleted\n"),
          }),
        ),
    );
}
