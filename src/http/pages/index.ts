import { createHash } from "node:crypto";
import accepts from "@fastify/accepts";
import type { FastifyInstance } from "fastify";
import { LRUCache } from "lru-cache";
import { errorCodes, pathOf } from "../../errors.js";
import type { SendBody } from "../call.js";
import { errorPagePath, successBody, successMembers } from "../json/envelope.js";
import { type Addresses, addressesOf } from "./addresses.js";
import { errorIndex, errorPage } from "./errors.js";
import { homeData, homePage } from "./home.js";
import { icon, type Page, paths, renderPage } from "./layout.js";
import { style } from "./style.js";

/**
 * The pages that people open: `/`, the list of errors, and a page for each error at the address that its `type` names.
 *
 * @param grpcPort known only once it is open, as docsBase is
 */
export function pages(docsBase: () => string, grpcPort: () => number, send: SendBody) {
  // A page is made once for each name that the service is asked by, of which there are few.
  const made = new LRUCache<string, Buffer>({ maxSize: 4 * 2 ** 20, sizeCalculation: ({ length }) => length });

  return async (scope: FastifyInstance): Promise<void> => {
    await scope.register(accepts);
    scope.addHook("onRequest", async (_request, reply) => {
      reply.headers(securityHeaders);
    });

    // HTML for those who ask for it, as browsers do; curl, and whoever takes anything, gets JSON.
    scope.get(paths.home, async (request, reply) => {
      const protocols = addressesOf(request, grpcPort());
      reply.header("vary", "accept");
      if (request.accepts().type(["json", "html"]) === "html") {
        send(request, reply.type(htmlType), pageFor(paths.home, protocols, homePage));
      } else {
        send(request, reply.type(jsonType), successBody(request.call.requestId, successMembers(homeData(protocols))));
      }
      return reply;
    });

    servePage(paths.errors, errorIndex);
    servePage(`${paths.errors}/`, errorIndex);
    for (const code of errorCodes) {
      servePage(errorPagePath(pathOf(code)), ({ http }) => errorPage(code, docsBase(), http));
    }

    scope.get(paths.icon, async (request, reply) => {
      send(request, reply.type("image/svg+xml").header("cache-control", "public, max-age=86400"), icon);
      return reply;
    });

    function servePage(path: string, write: (protocols: Addresses) => Page): void {
      scope.get(path, async (request, reply) => {
        send(request, reply.type(htmlType), pageFor(path, addressesOf(request, grpcPort()), write));
        return reply;
      });
    }
  };

  function pageFor(path: string, protocols: Addresses, write: (protocols: Addresses) => Page): Buffer {
    const name = `${path} ${protocols.http} ${protocols.grpc} ${protocols.grpcOverTls}`;
    const known = made.get(name);
    if (known !== undefined) return known;
    const page = Buffer.from(renderPage(write(protocols)));
    made.set(name, page);
    return page;
  }
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
