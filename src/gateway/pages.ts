import { createHash } from "node:crypto";
import accepts from "@fastify/accepts";
import type { FastifyInstance } from "fastify";
import { failureCodes, pathOf } from "../errors.js";
import { errorPagePath, successBody, successMembers } from "./envelope.js";
import { doorsOf } from "./pages/doors.js";
import { errorIndex, errorPage } from "./pages/errors.js";
import { homeData, homePage } from "./pages/home.js";
import { icon, layOut, type Page, paths } from "./pages/layout.js";
import { style } from "./pages/style.js";

/**
 * The pages that people open: `/`, the list of errors, and a page for each error at the address that its `type` names.
 *
 * @param grpcPort known only once it is open, as docsBase is
 */
export function pages(docsBase: () => string, grpcPort: () => number) {
  return async (scope: FastifyInstance): Promise<void> => {
    await scope.register(accepts);
    scope.addHook("onRequest", async (_request, reply) => {
      reply.headers(securityHeaders);
    });

    // HTML for those who ask for it, as browsers do; curl, and whoever takes anything, gets JSON.
    scope.get(paths.home, async (request, reply) => {
      const doors = doorsOf(request, grpcPort());
      reply.header("vary", "accept");
      return request.accepts().type(["json", "html"]) === "html"
        ? reply.type(htmlType).send(layOut(homePage(doors)))
        : reply.type(jsonType).send(successBody(request.call.requestId, successMembers(homeData(doors))));
    });

    servePage(paths.errors, errorIndex);
    servePage(`${paths.errors}/`, errorIndex);
    for (const code of failureCodes) {
      servePage(errorPagePath(pathOf(code)), (http) => errorPage(code, docsBase(), http));
    }

    scope.get(paths.icon, async (_request, reply) =>
      reply.type("image/svg+xml").header("cache-control", "public, max-age=86400").send(icon),
    );

    function servePage(path: string, write: (http: string) => Page): void {
      scope.get(path, async (request, reply) =>
        reply.type(htmlType).send(layOut(write(doorsOf(request, grpcPort()).http))),
      );
    }
  };
}

const htmlType = "text/html; charset=utf-8";
const jsonType = "application/json; charset=utf-8";

/**
 * A page is whole in itself: nothing is loaded but the icon, nothing runs, and the one style is allowed by its hash. So
 * replicas of different versions behind one address cannot mix their pages up.
 */
const securityHeaders = {
  "content-security-policy": [
    "default-src 'none'",
    `style-src 'sha256-${createHash("sha256").update(style.markup).digest("base64")}'`,
    "img-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; "),
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cache-control": "no-cache",
};
