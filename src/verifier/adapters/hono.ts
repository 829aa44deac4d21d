// Hono is imported for its types alone.
import type { MiddlewareHandler } from "hono";
import type { ValidKey } from "../result.js";
import { type AdapterOptions, createAuthorize, jsonHeaders, validateQuery } from "./authorization.js";

export type { AdapterOptions, RefusalBody } from "./authorization.js";

/** What the middleware sets: `c.get("apiKey")` is the verified key. */
export interface ApiKeyEnv {
  Variables: { readonly apiKey: ValidKey };
}

/**
 * Returns a function that makes middleware for a permission query; without a query, any valid key is accepted.
 *
 *     const requireKey = latchkey({ verifier });
 *     app.get("/documents", requireKey("documents.read"), (c) => c.json(c.get("apiKey").keyId));
 */
export function latchkey(options: AdapterOptions): (permissions?: string) => MiddlewareHandler<ApiKeyEnv> {
  const authorize = createAuthorize(options);
  return (permissions) => {
    validateQuery(permissions);
    return async (c, next) => {
      // Headers of the same name arrive joined by commas, which no key contains: several are refused.
      const header = c.req.header("authorization");
      const authorized = authorize(header === undefined ? [] : [header], permissions);
      const outcome = authorized instanceof Promise ? await authorized : authorized;
      if (!outcome.valid) return c.json(outcome.body, outcome.status, { ...outcome.headers, ...jsonHeaders });
      c.set("apiKey", outcome);
      return await next();
    };
  };
}
