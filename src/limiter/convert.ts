import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { LimitRequest, RateLimitOverrideSchema } from "../../gen/latchkey/v1/rate_limits_service_pb.js";
import { type FieldError, invalidInput } from "../errors.js";
import { limiterCounterKey } from "./counter-key.js";
import type { CounterState, CounterUse } from "./counters.js";
import type { Override } from "./override-set.js";
import type { OverrideRow } from "./overrides-store.js";

/** A use of the stand-alone limiter, with its override, if there is one. */
export interface LimitedUse extends CounterUse {
  readonly overrideId: string | undefined;
}

/** The use that a request asks for. */
export function toUse(workspaceId: string, request: LimitRequest, override: Override | undefined): LimitedUse {
  const { namespace, identifier, cost = 1n } = request;
  const limit = override?.limit ?? Number(request.limit);
  const durationMs = override?.duration ?? Number(request.duration);
  const key = limiterCounterKey(workspaceId, namespace, identifier, durationMs);
  return { key, limit, durationMs, cost: Number(cost), overrideId: override?.overrideId };
}

/** What the responses of one and of several limits have in common. */
export function toLimitState({ limit, overrideId }: LimitedUse, state: CounterState, perProcess: boolean) {
  return {
    limit: BigInt(limit),
    remaining: BigInt(state.remaining),
    reset: timestampFromMs(Date.now() + state.msLeft),
    ...(overrideId !== undefined && { overrideId }),
    ...(perProcess && { perProcess }),
  };
}

/** Converts a stored override to its message. */
export function toOverride(row: OverrideRow): MessageInitShape<typeof RateLimitOverrideSchema> {
  const { overrideId, namespace, identifier, limit, duration } = row;
  return { overrideId, namespace, identifier, limit: BigInt(limit), duration: BigInt(duration) };
}

/** Throws if a namespace and an identifier occur twice: the script that counts would read the same counter twice. */
export function refuseDuplicates(limits: readonly LimitRequest[]): void {
  const pairs = new Set<string>();
  const errors: FieldError[] = [];
  limits.forEach(({ namespace, identifier }, index) => {
    const pair = JSON.stringify([namespace, identifier]);
    if (pairs.has(pair)) errors.push({ location: `limits[${index}]`, message: repeatedPair });
    pairs.add(pair);
  });
  if (errors.length > 0) throw invalidInput(errors);
}

const repeatedPair =
  "has the namespace and identifier of an earlier limit; send each pair once, with the sum of the costs";
