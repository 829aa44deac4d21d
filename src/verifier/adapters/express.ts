import type { IncomingMessage, ServerResponse } from "node:http";
import type { ValidKey } from "../result.js";
import {
  type AdapterOptions,
  authorizationOf,
  createAuthorize,
  jsonHeaders,
  settle,
  validateQuery,
} from "./authorization.js";

export type { AdapterOptions, RefusalBody } from "./authorization.js";

declare global {
  // The namespace in which Express's types collect the properties of requests.
  namespace Express {
    interface Request {
      /** The verified key. Undefined on a route without the middleware. */
      apiKey?: ValidKey;
    }
  }
}

/** Middleware of Express, Connect and others with their signature. */
export type Middleware = (
  request: IncomingMessage & { apiKey?: ValidKey },
  response: ServerResponse,
  next: (error?: unknown) => void,
) => void;

/**
 * Returns a function that makes middleware for a permission query; without a query, any valid key is accepted.
 *
 *     const requireKey = latchkey({ verifier });
 *     app.get("/documents", requireKey("documents.read"), (req, res) => res.json(req.apiKey?.keyId));
 */
export function latchkey(options: AdapterOptions): (permissions?: string) => Middleware {
  const authorize = createAuthorize(options);
  return (permissions) => {
    validateQuery(permissions);
    return (request, response, next) =>
      settle(
        authorize(authorizationOf(request.rawHeaders), permissions),
        (outcome) => {
          if (response.headersSent) return; // such as by a timeout of the application
          if (!outcome.valid) {
            response.writeHead(outcome.status, { ...outcome.headers, ...jsonHeaders });
            response.end(JSON.stringify(outcome.body));
            return;
          }
          request.apiKey = outcome;
          next();
        },
        next,
      );
  };
}
