// Fastify is imported for its types alone.
import type { FastifyPluginCallback, FastifyRequest } from "fastify";
import type { ValidKey } from "../result.js";
import {
  type AdapterOptions,
  authorizationOf,
  createAuthorize,
  jsonHeaders,
  type Requirement,
  settle,
  validateQuery,
} from "./authorization.js";

export type { AdapterOptions, RefusalBody } from "./authorization.js";

declare module "fastify" {
  interface FastifyRequest {
    /** The verified key. Throws on a route that needs none. */
    readonly apiKey: ValidKey;
  }
  interface FastifyContextConfig {
    /** What the key must be allowed to do; any valid key without it. `false`: the route needs no key. */
    permissions?: Requirement;
  }
}

const keys = new WeakMap<FastifyRequest, ValidKey>();

/**
 * A plugin that requires a valid key for all routes of its context. Register it before plugins that contain routes.
 *
 *     await app.register(latchkey, { verifier });
 *     app.get("/documents", { config: { permissions: "documents.read" } }, (request) => request.apiKey.keyId);
 */
export const latchkey: FastifyPluginCallback<AdapterOptions> = (app, options, done) => {
  const authorize = createAuthorize(options);
  if (!app.hasRequestDecorator("apiKey")) {
    app.decorateRequest("apiKey", {
      getter() {
        const key = keys.get(this);
        if (key === undefined) throw new Error("The request has no API key, because its route needs none.");
        return key;
      },
    });
  }
  app.addHook("onRoute", ({ config }) => validateQuery(config?.permissions || undefined));
  // As soon as the headers have arrived, before the body is read.
  app.addHook("onRequest", (request, reply, next) => {
    const { permissions } = request.routeOptions.config;
    if (permissions === false) return next();
    settle(
      authorize(authorizationOf(request.raw.rawHeaders), permissions),
      (outcome) => {
        if (!outcome.valid) {
          reply
            .code(outcome.status)
            .headers({ ...outcome.headers, ...jsonHeaders })
            .send(outcome.body);
          return;
        }
        keys.set(request, outcome);
        next();
      },
      (error) => next(error as Error),
    );
  });
  done();
};

// As fastify-plugin does: the hooks are those of the context that registers the plugin, and not of a new one.
Object.assign(latchkey, {
  [Symbol.for("skip-override")]: true,
  [Symbol.for("fastify.display-name")]: "latchkey",
  [Symbol.for("plugin-meta")]: { name: "latchkey", fastify: "5.x" },
});
