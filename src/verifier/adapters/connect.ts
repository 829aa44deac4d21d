import type { DescMethod } from "@bufbuild/protobuf";
import { ConnectError, type ContextKey, createContextKey, type Interceptor } from "@connectrpc/connect";
import type { ValidKey } from "../result.js";
import { type AdapterOptions, createAuthorize, type Requirement } from "./authorization.js";

export type { AdapterOptions } from "./authorization.js";

export interface ConnectAdapterOptions extends AdapterOptions {
  /** The permission query of a method. Undefined: any valid key. `false`: no key. */
  readonly permissions?: (method: DescMethod) => Requirement;
}

/** The verified key: `context.values.get(apiKey)` in a handler. Undefined for a method that needs no key. */
export const apiKey: ContextKey<ValidKey | undefined> = createContextKey<ValidKey | undefined>(undefined, {
  description: "the verified API key",
});

/**
 * A server interceptor that requires a valid key for all methods. A stream is authorized at its start.
 *
 *     const interceptors = [latchkey({ verifier, permissions: ({ name }) => queries[name] })];
 */
export function latchkey({ permissions, ...options }: ConnectAdapterOptions): Interceptor {
  const authorize = createAuthorize(options);
  return (next) => async (request) => {
    const query = permissions?.(request.method);
    if (query === false) return next(request);
    const header = request.header.get("authorization");
    const authorized = authorize(header === null ? [] : [header], query);
    const outcome = authorized instanceof Promise ? await authorized : authorized;
    if (!outcome.valid) throw new ConnectError(outcome.body.message, outcome.code, outcome.headers);
    request.contextValues.set(apiKey, outcome);
    return next(request);
  };
}
