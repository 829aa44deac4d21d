import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type {} from "@fastify/accepts";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { LRUCache } from "lru-cache";
import { errorCodes, pathOf } from "../../errors.js";
import { type SendBody, varyBy } from "../call.js";
import { errorPagePath, successBody, successMembers } from "../json/envelope.js";
import type { DocsBase } from "../origin.js";
import { type Addresses, addressesOf } from "./addresses.js";
import { errorIndex, errorPage } from "./errors.js";
import { homeData, homePage } from "./home.js";
import { html } from "./html.js";
import { icon, type Page, paths, renderPage } from "./layout.js";
import { style } from "./style.js";

/**
 * The HTML pages: `/`, the list of errors, and a page for each error at the URL that its `type` names.
 *
 * @param grpcPort a function, because the port may be known only once the server listens
 */
export function pages(docsBase: DocsBase, grpcPort: () => number, send: SendBody) {
  // A page is rendered once for each host name that clients use, of which there are few.
  const renderedPages = new LRUCache<string, Buffer>({ maxSize: 4 * 2 ** 20, sizeCalculation: ({ length }) => length });

  return async (scope: FastifyInstance): Promise<void> => {
    scope.addHook("onRequest", async (_request, reply) => {
      reply.headers(securityHeaders);
    });

    scope.get(paths.home, async (request, reply) => {
      const addresses = addressesOf(request, grpcPort());
      varyBy(reply, "accept");
      if (prefersHtml(request)) {
        send(request, reply.type(htmlType), pageFor(paths.home, addresses, homePage));
      } else {
        send(request, reply.type(jsonType), successBody(request.call.requestId, successMembers(homeData(addresses))));
      }
      return reply;
    });

    servePage(paths.errors, errorIndex);
    servePage(`${paths.errors}/`, errorIndex);
    for (const code of errorCodes) {
      servePage(errorPagePath(pathOf(code)), ({ http }, request) => errorPage(code, docsBase(request), http));
    }

    scope.get(paths.icon, async (request, reply) => {
      send(request, reply.type("image/svg+xml").header("cache-control", "public, max-age=86400"), icon);
      return reply;
    });

    function servePage(path: string, createPage: (addresses: Addresses, request: IncomingMessage) => Page): void {
      scope.get(path, async (request, reply) => {
        const createFor = (addresses: Addresses) => createPage(addresses, request.raw);
        send(request, reply.type(htmlType), pageFor(path, addressesOf(request, grpcPort()), createFor));
        return reply;
      });
    }
  };

  function pageFor(path: string, addresses: Addresses, createPage: (addresses: Addresses) => Page): Buffer {
    const cacheKey = `${path} ${addresses.http} ${addresses.grpc} ${addresses.grpcOverTls}`;
    const cached = renderedPages.get(cacheKey);
    if (cached !== undefined) return cached;
    const page = Buffer.from(renderPage(createPage(addresses)));
    renderedPages.set(cacheKey, page);
    return page;
  }
}

/** Whether a client prefers HTML, as browsers do. Clients that accept anything, such as curl, get JSON. */
export function prefersHtml(request: FastifyRequest): boolean {
  return request.accepts().type(["json", "html"]) === "html";
}

const htmlType = "text/html; charset=utf-8";
const jsonType = "application/json; charset=utf-8";

/**
 * A page is self-contained: it loads only the icon, runs no script, and its one style is allowed by its hash. So a page
 * cannot mix parts of different versions when replicas of different versions serve one address.
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

/** The headers of the page for an unknown path. */
export const notFoundHeaders = {
  ...securityHeaders,
  "content-type": htmlType,
  "cache-control": "no-store",
  vary: "accept",
};

/** The page for an unknown path. It does not repeat the path, and it is rendered once, because anyone can request it. */
export const notFoundPage = Buffer.from(
  renderPage({
    title: "Not found · Latchkey",
    main: html`<h1>Not found</h1>
<p class="lead">There is no page at this address.</p>
<ul>
<li><a href="${paths.home}">Home</a>: the protocols of this service, with example calls</li>
<li><a href="${paths.reference}">Reference</a>: every operation</li>
<li><a href="${paths.errors}">Errors</a>: what each error means, and how to fix it</li>
</ul>`,
  }),
);
