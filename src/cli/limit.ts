import { Command } from "commander";
import {
  DeleteOverrideResponseSchema,
  GetOverrideResponseSchema,
  LimitResponseSchema,
  ListOverridesResponseSchema,
  type RateLimitOverride,
  SetOverrideResponseSchema,
} from "../../gen/latchkey/v1/rate_limits_service_pb.js";
import type { ClientConfig } from "../config.js";
import { callAction, count, listCommand, remoteCommand } from "./command.js";
import { NotValid } from "./exit-codes.js";
import { type LimitPerWindow, limitPerWindow, showLimit } from "./limit-text.js";
import { type Columns, writeNextPageHint, writeRecord, writeTable } from "./output.js";

const columns: Columns<RateLimitOverride> = {
  ID: ({ overrideId }) => overrideId,
  NAMESPACE: ({ namespace }) => namespace,
  IDENTIFIER: ({ identifier }) => identifier,
  LIMIT: showLimit,
};

interface UseFlags {
  readonly cost?: number;
}

/** `latchkey limit …`: the limiter that needs no keys. It uses a key of the workspace. */
export function limitCommand(config: ClientConfig): Command {
  const role = "key" as const;

  return new Command("limit")
    .description("count a use against a rate limit, and set other limits for some identifiers")
    .exitOverride()
    .addCommand(
      remoteCommand("use", "count a use; the exit code is 0 only if it is within the limit")
        .argument("<namespace>", "a group of identifiers, such as email.send")
        .argument("<identifier>", "what is limited, such as a user")
        .argument("<limit>", "the limit and the duration of a window, such as 10/1m", limitPerWindow)
        .option("--cost <count>", "how much is used (default: 1)", count)
        .action(
          callAction(config, {
            role,
            response: LimitResponseSchema,
            call: ({ rateLimits }, { cost }: UseFlags, namespace: string, identifier: string, limit: LimitPerWindow) =>
              rateLimits.limit({ namespace, identifier, ...limit, cost: cost === undefined ? cost : BigInt(cost) }),
            show: (state) =>
              writeRecord(state, {
                RESULT: ({ success }) => (success ? "within the limit" : "exceeded"),
                LIMIT: ({ limit }) => limit,
                REMAINING: ({ remaining }) => remaining,
                RESET: ({ reset }) => reset,
                OVERRIDE: ({ overrideId }) => overrideId,
                COUNTED: ({ perProcess }) => (perProcess ? "per process" : undefined),
              }),
            afterPrint: ({ success }) => {
              if (!success) throw new NotValid();
            },
          }),
        ),
    )
    .addCommand(
      remoteCommand("set-override", "set another limit for an identifier, or for all that match a pattern")
        .argument("<namespace>")
        .argument("<identifier>", "an identifier, or a pattern with *, such as premium_*")
        .argument("<limit>", "the limit and the duration of a window, such as 100/1m; 0/1m refuses", limitPerWindow)
        .action(
          callAction(config, {
            role,
            response: SetOverrideResponseSchema,
            call: ({ rateLimits }, _flags: object, namespace: string, identifier: string, limit: LimitPerWindow) =>
              rateLimits.setOverride({ namespace, identifier, ...limit }),
            show: (set) => writeRecord(set, { ID: ({ overrideId }) => overrideId }),
          }),
        ),
    )
    .addCommand(
      remoteCommand("get-override", "show one override")
        .argument("<namespace>")
        .argument("<identifier>", "the identifier or pattern that it was set for")
        .action(
          callAction(config, {
            role,
            response: GetOverrideResponseSchema,
            call: ({ rateLimits }, _flags, namespace, identifier) => rateLimits.getOverride({ namespace, identifier }),
            show: ({ override }) => override && writeRecord(override, columns),
          }),
        ),
    )
    .addCommand(
      listCommand("list the overrides of a namespace, newest last")
        .name("list-overrides")
        .argument("<namespace>")
        .action(
          callAction(config, {
            role,
            response: ListOverridesResponseSchema,
            call: ({ rateLimits }, { limit, cursor }: { limit?: number; cursor?: string }, namespace) =>
              rateLimits.listOverrides({ namespace, limit, cursor }),
            show: ({ overrides, pagination }) => {
              writeTable(overrides, columns);
              writeNextPageHint(pagination);
            },
          }),
        ),
    )
    .addCommand(
      remoteCommand("delete-override", "delete an override")
        .argument("<namespace>")
        .argument("<identifier>", "the identifier or pattern that it was set for")
        .action(
          callAction(config, {
            role,
            response: DeleteOverrideResponseSchema,
            call: ({ rateLimits }, _flags, namespace, identifier) =>
              rateLimits.deleteOverride({ namespace, identifier }),
            show: () => process.stdout.write("deleted\n"),
          }),
        ),
    );
}
