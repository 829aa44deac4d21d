import type { OperationKind } from "../../gen/client.js";
import { checkIdempotencyKey } from "./credential.js";
import { type FieldError, isLatchkeyError, LatchkeyError, NoResponseError } from "./error.js";
import { checkInteger, maxTimerMs } from "./integer.js";
import { checkUrl } from "./url.js";

/** The options of one call. */
export interface CallOptions {
  /**
   * Names the change of the call, such as a random UUID: with the same one, the change is made once, and a retry returns
   * the first response. Operations that accept it get a random one if none is given.
   */
  readonly idempotencyKey?: string | undefined;
  /** How long the call may take, with its retries, in milliseconds. Default: that of the client. */
  readonly timeoutMs?: number | undefined;
  /** Aborts the call. It then rejects with the reason of the signal. */
  readonly signal?: AbortSignal | undefined;
  /** Further headers. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Called with the headers of each response, such as `X-Request-Id` and `RateLimit`. */
  readonly onHeaders?: ((headers: Headers) => void) | undefined;
}

/** The service, and how it is called. */
export interface HttpOptions {
  /** The service's HTTP address, such as `https://keys.example.com`. */
  readonly url: string;
  /** An API key, or the operator credential for workspace operations. */
  readonly key: string;
  /** How long a call may take, with its retries, in milliseconds. Default: 10,000. */
  readonly timeoutMs?: number | undefined;
  /**
   * How often a call is repeated if the service is unreachable or unavailable, and if a repetition does no harm. Default: 2.
   */
  readonly maxRetries?: number | undefined;
  /** Replaces the global fetch, for example to use a proxy. */
  readonly fetch?: typeof globalThis.fetch | undefined;
}

/** The body of a successful response. */
export interface Success {
  readonly data: unknown;
  readonly pagination?: unknown;
}

/** Calls one operation, such as `keys.createKey`. */
export type CallHttp = (
  operation: string,
  kind: OperationKind,
  request: unknown,
  options: CallOptions,
) => Promise<Success>;

/** The pause before the first retry. It doubles with each retry, and half of it is random. */
const firstPauseMs = 100;

/** Calls over HTTP/JSON with fetch. */
export function createHttp({
  url,
  key,
  timeoutMs: defaultTimeoutMs = 10_000,
  maxRetries = 2,
  fetch,
}: HttpOptions): CallHttp {
  checkUrl("url", url);
  checkInteger("timeoutMs", defaultTimeoutMs, 0, maxTimerMs);
  const base = url.replace(/\/+$/, "");

  /** One request and its response. */
  async function send(operation: string, init: RequestInit, onHeaders: CallOptions["onHeaders"]): Promise<Success> {
    const { response, text } = await receive(`${base}/v2/${operation}`, init);
    onHeaders?.(response.headers);
    const body = parse(text);
    if (response.ok && "data" in body) return body as { data: unknown };
    throw errorOf(response, body);
  }

  async function receive(address: string, init: RequestInit): Promise<{ response: Response; text: string }> {
    try {
      const response = await (fetch ?? globalThis.fetch)(address, init);
      return { response, text: await response.text() };
    } catch (cause) {
      throw new NoResponseError("unreachable", `The service at ${url} cannot be reached.`, cause);
    }
  }

  function headersOf(kind: OperationKind, { headers: further, idempotencyKey }: CallOptions): Headers {
    const headers = new Headers(further);
    if (idempotencyKey !== undefined) {
      checkIdempotencyKey(idempotencyKey);
      headers.set("idempotency-key", idempotencyKey);
    }
    if (kind === "idempotent" && !headers.has("idempotency-key")) headers.set("idempotency-key", crypto.randomUUID());
    headers.set("authorization", `Bearer ${key}`);
    headers.set("content-type", "application/json");
    headers.set("accept", "application/json");
    return headers;
  }

  return async (operation, kind, request, options) => {
    const { timeoutMs = defaultTimeoutMs, signal, onHeaders } = options;
    checkInteger("timeoutMs", timeoutMs, 0, maxTimerMs);
    signal?.throwIfAborted();
    const timeout = AbortSignal.timeout(timeoutMs);
    const deadline = performance.now() + timeoutMs;
    const init: RequestInit = {
      method: "POST",
      headers: headersOf(kind, options),
      body: encode(request),
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      // The body may contain a secret, which must not follow a redirect to another host.
      redirect: "manual",
    };
    for (let retries = 0; ; retries++) {
      try {
        return await send(operation, init, onHeaders);
      } catch (error) {
        const isUnreachable = error instanceof NoResponseError && error.code === "unreachable";
        if (isUnreachable) signal?.throwIfAborted();
        if (isUnreachable && timeout.aborted) {
          const message = `The service at ${url} has not responded within ${timeoutMs} ms.`;
          throw new NoResponseError("timeout", message, error.cause);
        }
        const isTemporary = isUnreachable || isLatchkeyError(error, "service_unavailable");
        if (kind === "change" || !isTemporary || retries >= maxRetries) throw error;
        const backoffMs = firstPauseMs * 2 ** retries * (0.5 + Math.random() / 2);
        const pauseMs = Math.max(backoffMs, (isLatchkeyError(error) && error.retryAfterMs) || 0);
        if (performance.now() + pauseMs > deadline) throw error;
        await pause(pauseMs, init.signal as AbortSignal);
      }
    }
  };
}

/**
 * A request as JSON. A Date becomes Unix milliseconds. An invalid date or number is refused here: as JSON it would be
 * null, which clears a field: a key would never expire.
 */
function encode(request: unknown): string {
  return JSON.stringify(request, function (this: Record<string, unknown>, name, value: unknown) {
    const member = this[name]; // a Date has already been converted to a text in `value`
    const number = member instanceof Date ? member.getTime() : value;
    if (typeof number !== "number" || Number.isFinite(number)) return number;
    throw new TypeError(`${name} must be a valid ${member instanceof Date ? "date" : "number"}.`);
  });
}

function parse(text: string): Record<string, unknown> {
  try {
    const body: unknown = JSON.parse(text);
    return typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** The body of an error response. */
interface Failure {
  readonly meta?: { readonly requestId?: string };
  readonly error?: { readonly detail?: string; readonly type?: string; readonly errors?: readonly FieldError[] };
}

function errorOf({ status, headers, url }: Response, { meta, error }: Failure): LatchkeyError | NoResponseError {
  const [type] = /[a-z]+\/[a-z_]+$/.exec(error?.type ?? "") ?? [];
  if (type === undefined) {
    const message = `The response of ${url} with status ${status} is not one of the service. Check the url of the client.`;
    return new NoResponseError("invalid_response", message);
  }
  return new LatchkeyError({
    message: error?.detail ?? "",
    type,
    status,
    requestId: meta?.requestId ?? "",
    fieldErrors: error?.errors ?? [],
    retryAfterMs: Number(headers.get("retry-after") ?? Number.NaN) * 1_000 || undefined,
  });
}

/** Ends with the signal, too. The next request then fails with it. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}
