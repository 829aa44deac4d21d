import { Code } from "@connectrpc/connect";
import type { MaybePromise } from "../../call/maybe-promise.js";
import { isLatchkeyError } from "../../client/error.js";
import { ApiError } from "../../errors.js";
import { parsePermissionQuery } from "../../keys/permission-query.js";
import type { InvalidKey, RateLimitState, ValidKey } from "../result.js";
import type { Verifier } from "../verifier.js";

/** The options of every adapter. */
export interface AdapterOptions {
  /** An open verifier. */
  readonly verifier: Pick<Verifier, "verify">;
  /** The name of your API in the header WWW-Authenticate. Default: `api`. */
  readonly realm?: string;
  /** Called with the reason when a request was refused because its key could not be verified. */
  readonly onError?: (error: unknown) => void;
}

/** What a route or method needs: a permission query, any valid key (undefined), or no key at all (false). */
export type Requirement = string | false | undefined;

/**
 * The response to a request that is not authorized.
 *
 * @internal
 */
export interface Refusal {
  readonly valid: false;
  readonly status: 401 | 403 | 429 | 503;
  /** The status of gRPC and Connect. */
  readonly code: Code;
  /** WWW-Authenticate and Retry-After. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: RefusalBody;
}

/** The JSON body of a refusal. */
export interface RefusalBody {
  /** A code of VerifyKey, or `MISSING`, `MALFORMED` or `UNAVAILABLE`. */
  readonly code: InvalidKey["code"] | "MISSING" | "MALFORMED" | "UNAVAILABLE";
  /** What happened, and what to do. */
  readonly message: string;
}

/**
 * The key of a request, or the refusal. Rejects if the permission query is invalid.
 *
 * @internal
 */
export type Authorize = (
  authorization: readonly string[],
  permissions: string | undefined,
) => MaybePromise<ValidKey | Refusal>;

/** The headers of a refusal over HTTP. A cache must not return it for another key. */
export const jsonHeaders = { "content-type": "application/json; charset=utf-8", "cache-control": "no-store" } as const;

/** Longer texts cannot be keys, so the service is not asked. */
const maxTokenLength = 512;

/** The service refuses longer queries. */
const maxQueryLength = 1_000;

/** Without a delay of the service's own. */
const defaultRetryAfterMs = 1_000;

/** @internal */
export function createAuthorize({ verifier, realm = "api", onError }: AdapterOptions): Authorize {
  const challenge = `Bearer realm="${quoted(realm)}"`;

  function refusal(code: RefusalBody["code"], message: string, error = `, error="invalid_token"`): Refusal {
    const headers = { "www-authenticate": challenge + error };
    return { valid: false, status: 401, code: Code.Unauthenticated, headers, body: { code, message } };
  }

  function refuseKey(key: InvalidKey, permissions: string | undefined): Refusal {
    const { code } = key;
    if (code === "RATE_LIMITED" || code === "USAGE_EXCEEDED") return exhausted(code, key);
    if (code !== "INSUFFICIENT_PERMISSIONS") return refusal(code, messages[code] ?? messages.FORBIDDEN);
    const message = `The API key lacks a permission. Use a key that has: ${permissions}.`;
    const unauthorized = refusal(code, message, `, error="insufficient_scope"`);
    return { ...unauthorized, status: 403, code: Code.PermissionDenied };
  }

  /** No challenge: another key, or the same one later, is accepted. */
  function exhausted(code: "RATE_LIMITED" | "USAGE_EXCEEDED", { ratelimits = [] }: InvalidKey): Refusal {
    const seconds = ratelimits.filter((limit) => limit.exceeded).map(secondsToReset);
    const headers: Refusal["headers"] = seconds.length > 0 ? { "retry-after": `${Math.max(...seconds)}` } : {};
    return {
      valid: false,
      status: 429,
      code: Code.ResourceExhausted,
      headers,
      body: { code, message: messages[code] },
    };
  }

  function unverified(error: unknown): Refusal {
    onError?.(error);
    // Not the fault of the request: the query is a mistake in the application.
    if (isLatchkeyError(error, "invalid_input")) throw error;
    const retryAfterMs = (isLatchkeyError(error) ? error.retryAfterMs : undefined) ?? defaultRetryAfterMs;
    const message = "The API key cannot be verified at present. Retry after the time in Retry-After.";
    return {
      valid: false,
      status: 503,
      code: Code.Unavailable,
      headers: { "retry-after": String(Math.ceil(retryAfterMs / 1_000)) },
      body: { code: "UNAVAILABLE", message },
    };
  }

  return (authorization, permissions) => {
    // In JavaScript, a table without an entry may give null. It must not count as "any valid key".
    if (permissions !== undefined && typeof permissions !== "string") {
      throw new TypeError(
        "The permissions of a request must be a query, undefined for any valid key, or false for no key.",
      );
    }
    const [header] = authorization;
    // RFC 6750, section 3.1: without a bearer token, the challenge has no error.
    if (header === undefined) return refusal("MISSING", messages.MISSING, "");
    if (authorization.length > 1) return refusal("MALFORMED", "Send one Authorization header, not several.");
    if (!/^Bearer( |$)/i.test(header)) return refusal("MISSING", messages.MISSING, "");
    const [, token] = /^Bearer +([^\s,]+)$/i.exec(header) ?? [];
    if (token === undefined || token.length > maxTokenLength) return refusal("MALFORMED", messages.MALFORMED);
    const verified = verifier.verify(token, permissions === undefined ? {} : { permissions });
    if (verified instanceof Promise) {
      return verified.then((result) => (result.valid ? result : refuseKey(result, permissions)), unverified);
    }
    return verified.valid ? verified : refuseKey(verified, permissions);
  };
}

const messages = {
  MISSING: "The request has no API key. Send the header `Authorization: Bearer <API_KEY>`.",
  MALFORMED: "The Authorization header is not of the form `Bearer <API_KEY>`. Copy the key again.",
  NOT_FOUND: "The API key does not exist, or it was deleted. Copy it again, or use another key.",
  DISABLED: "The API key is disabled. Use another key.",
  EXPIRED: "The API key has expired. Use another key.",
  RATE_LIMITED: "The API key has reached a rate limit. Retry after the time in Retry-After.",
  USAGE_EXCEEDED: "The API key has too few credits left. Retry after they were refilled, or use another key.",
  FORBIDDEN: "The API key must not be used. Use another key.",
} as const;

/** The clock of the service may differ from ours, so the time is at least a second and at most a window. */
function secondsToReset({ reset, duration }: RateLimitState): number {
  const seconds = Math.ceil((reset.getTime() - Date.now()) / 1_000);
  return Math.min(Math.max(seconds, 1), Math.ceil(duration / 1_000));
}

/**
 * Calls `use` at once if the value is available: a cached key costs no turn of the event loop.
 *
 * @internal
 */
export function settle<T>(value: MaybePromise<T>, use: (value: T) => void, fail: (error: unknown) => void): void {
  if (value instanceof Promise) value.then(use, fail);
  else use(value);
}

/**
 * The values of all Authorization headers of a Node request. `headers.authorization` would be only the first of them.
 *
 * @param rawHeaders names and values in turn
 */
export function authorizationOf(rawHeaders: readonly string[]): string[] {
  const values: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string;
    if (name.length === 13 && name.toLowerCase() === "authorization") values.push(rawHeaders[index + 1] as string);
  }
  return values;
}

/** Throws if a permission query is invalid, so that a mistake is found at start-up and not by a request. */
export function validateQuery(permissions: string | undefined): void {
  if (permissions === undefined) return;
  if (permissions.length > maxQueryLength) {
    throw new TypeError(`The permission query is invalid: it has more than ${maxQueryLength} characters.`);
  }
  try {
    parsePermissionQuery(permissions);
  } catch (error) {
    const [field] = error instanceof ApiError ? (error.options.fields ?? []) : [];
    throw new TypeError(`The permission query is invalid: ${field?.message}`, { cause: error });
  }
}

function quoted(realm: string): string {
  if (!/^[\x20-\x7e]*$/.test(realm)) throw new TypeError("The realm must be printable ASCII.");
  return realm.replaceAll(/["\\]/g, "\\$&");
}
