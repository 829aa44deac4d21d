import type { RateLimitCheck } from "../../gen/latchkey/v1/rate_limit_pb.js";
import { type FieldError, invalidInput } from "../errors.js";
import { hashTagOf, verificationCounterKey } from "../limiter/counter-key.js";
import type { CounterUse } from "../limiter/counters.js";
import type { KeyState, RateLimitSettings } from "../revocation/key-state.js";

/** A rate limit that a verification must keep to, and what the verification uses of it. */
export interface AppliedLimit extends CounterUse {
  /** The name, if only the request defines the limit. */
  readonly id: string;
  readonly name: string;
  readonly autoApply: boolean;
}

/** Returns the rate limits of a verification, in the order of their names. */
export type LimitResolver = (key: KeyState["key"], checks: readonly RateLimitCheck[]) => readonly AppliedLimit[];

/** A rate limit of a key or of its identity, with a cost of 1. */
interface ConfiguredLimit extends AppliedLimit {
  readonly ownerId: string;
}

const none: readonly never[] = [];

/**
 * Resolves names: first to a rate limit of the key itself, then to one of its identity. So a rate limit of the key replaces
 * one of its identity with the same name. Throws `invalid_input` for a name that is neither, unless the request defines the
 * limit itself.
 */
export function createLimitResolver(): LimitResolver {
  /** Derived once per cached key state: the names of counters are hashed. */
  const configured = new WeakMap<KeyState["key"], ConfiguredLimits>();

  return (key, checks) => {
    // Without an identity, the columns of the identity are null.
    const hasLimits = key.ratelimits.length > 0 || (key.identityId !== null && key.identityRatelimits.length > 0);
    if (!hasLimits) return checks.length === 0 ? none : resolve(key, none, checks);
    let limits = configured.get(key);
    if (limits === undefined) {
      limits = configuredLimits(key);
      configured.set(key, limits);
    }
    return checks.length === 0 ? limits.automatic : resolve(key, limits.all, checks);
  };
}

interface ConfiguredLimits {
  readonly all: readonly ConfiguredLimit[];
  readonly automatic: readonly AppliedLimit[];
}

function configuredLimits(key: KeyState["key"]): ConfiguredLimits {
  const byName = new Map<string, ConfiguredLimit>();
  const { keyId, identityId } = key;
  if (identityId !== null) {
    for (const settings of key.identityRatelimits)
      byName.set(settings.name, configuredLimit(key, identityId, settings));
  }
  for (const settings of key.ratelimits) byName.set(settings.name, configuredLimit(key, keyId, settings));
  const all = [...byName.values()].sort(compareNames);
  return { all, automatic: all.filter(({ autoApply }) => autoApply) };
}

function configuredLimit(key: KeyState["key"], ownerId: string, settings: RateLimitSettings): ConfiguredLimit {
  const { id, name, limit, duration, autoApply } = settings;
  const counterKey = verificationCounterKey(hashTagOf(key), ownerId, name, duration);
  return { id, name, limit, durationMs: duration, autoApply, cost: 1, key: counterKey, ownerId };
}

function resolve(
  key: KeyState["key"],
  configured: readonly ConfiguredLimit[],
  checks: readonly RateLimitCheck[],
): readonly AppliedLimit[] {
  const errors: FieldError[] = [];
  const applied = new Map<string, AppliedLimit>();
  for (const limit of configured) if (limit.autoApply) applied.set(limit.name, limit);
  checks.forEach((check, index) => {
    const { name, cost = 1n } = check;
    const found = configured.find((one) => one.name === name);
    const limit = check.duration === undefined ? found : requestedLimit(key, found, check);
    if (limit === undefined) errors.push({ location: `ratelimits[${index}].name`, message: unknownName });
    else applied.set(name, { ...limit, cost: Number(cost) });
  });
  if (errors.length > 0) throw invalidInput(errors);
  return [...applied.values()].sort(compareNames);
}

const unknownName =
  "is not a rate limit of the key or its identity; add it with updateKey or updateIdentity, or send `limit` and `duration` with the name";

/** The limit that a request defines. protovalidate has checked that it has both a limit and a duration. */
function requestedLimit(
  key: KeyState["key"],
  found: ConfiguredLimit | undefined,
  { name, limit, duration }: RateLimitCheck,
): AppliedLimit {
  const durationMs = Number(duration);
  const counterKey = verificationCounterKey(hashTagOf(key), found?.ownerId ?? key.keyId, name, durationMs);
  const { id = name, autoApply = false } = found ?? {};
  return { id, name, limit: Number(limit), durationMs, autoApply, cost: 1, key: counterKey };
}

function compareNames(one: AppliedLimit, other: AppliedLimit): number {
  return one.name < other.name ? -1 : 1;
}
