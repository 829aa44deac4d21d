// The reference of the HTTP/JSON interface: the OpenAPI document and a page that shows it. The six files are a fixed
// list, served without a static file server, so no part of a request ever names a file.
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { type SendBody, varyBy } from "../call.js";
import type { DocsBase } from "../origin.js";
import { html } from "./html.js";
import { paths, renderPage } from "./layout.js";

/**
 * The base of the error URLs in the generated document. The served document has the service's own address instead, or
 * DOCS_BASE_URL. It is not made for each host that a client sends: compressing it takes too long for that.
 */
export const exampleDocsBase = "http://127.0.0.1:8080";

/** Serves the OpenAPI document at `/openapi.json`, and at `/docs` a page that shows it and can send calls. */
export function apiReference(docsBase: DocsBase, send: SendBody) {
  return async (server: FastifyInstance): Promise<void> => {
    const document = asset(async () => {
      const text = await readFile(new URL("../../../gen/openapi.json", import.meta.url), "utf8");
      return Buffer.from(text.replaceAll(`"${exampleDocsBase}/`, `"${docsBase()}/`));
    });
    server.get(paths.openapi, (request, reply) => sendAsset(request, reply, "application/json", document, send));

    for (const [path, { type, read }] of Object.entries(pageFiles)) {
      const content = asset(read);
      server.get(path, (request, reply) => {
        reply.header("content-security-policy", contentSecurityPolicy).header("referrer-policy", "no-referrer");
        return sendAsset(request, reply, type, content, send);
      });
    }
  };
}

/** Allows scripts, styles and calls of this service only, so that input, including a key, is never sent elsewhere. */
const contentSecurityPolicy = [
  "default-src 'self'",
  "style-src 'self' 'unsafe-inline'", // Swagger UI sets inline styles
  "img-src 'self' data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const referencePage = { type: "text/html; charset=utf-8", read: async () => Buffer.from(renderPage(page)) };

const pageFiles: Record<string, { type: string; read: () => Promise<Buffer> }> = {
  [paths.reference]: referencePage,
  [`${paths.reference}/`]: referencePage,
  "/docs/page.css": { type: "text/css; charset=utf-8", read: ownFile("page.css") },
  "/docs/page.js": { type: "text/javascript; charset=utf-8", read: ownFile("page.js") },
  "/docs/swagger-ui.css": { type: "text/css; charset=utf-8", read: swaggerUi("swagger-ui.css") },
  "/docs/swagger-ui.js": { type: "text/javascript; charset=utf-8", read: swaggerUi("swagger-ui-bundle.js") },
};

/** Swagger UI in the layout of all pages. */
const page = {
  title: "Reference · Latchkey",
  navPath: paths.reference,
  head: html`<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="stylesheet" href="/docs/page.css">
<script src="/docs/swagger-ui.js" defer></script>
<script src="/docs/page.js" defer></script>`,
  main: html`<div id="reference">
<noscript>This page needs JavaScript.
The same reference is available as <a href="${paths.openapi}">${paths.openapi}</a>.</noscript>
</div>`,
};

function ownFile(name: string): () => Promise<Buffer> {
  return () => readFile(new URL(`./assets/${name}`, import.meta.url));
}

/** Copied by the build. As a dependency, Swagger UI would bring 12 MB along, and a package that reports installations. */
function swaggerUi(name: string): () => Promise<Buffer> {
  return () => readFile(new URL(`../../../third_party/swagger-ui/${name}`, import.meta.url));
}

interface Asset {
  readonly plain: Buffer;
  readonly gzipped: Buffer;
  readonly etag: string;
}

const compress = promisify(gzip);

/** Reads a file on the first request, so that start-up costs nothing, and caches it. Errors are not cached. */
function asset(read: () => Promise<Buffer>): () => Promise<Asset> {
  let cached: Promise<Asset> | undefined;
  const load = async () => {
    const plain = await read();
    const hash = createHash("sha256").update(plain).digest("base64url");
    return { plain, gzipped: await compress(plain), etag: `W/"${hash}"` };
  };
  return () => {
    cached ??= load().catch((error) => {
      cached = undefined;
      throw error;
    });
    return cached;
  };
}

/** Browsers may cache the file, and revalidate it on each use. */
async function sendAsset(
  request: FastifyRequest,
  reply: FastifyReply,
  type: string,
  content: () => Promise<Asset>,
  send: SendBody,
): Promise<FastifyReply> {
  const { headers } = request;
  const { plain, gzipped, etag } = await content();
  reply.headers({ "cache-control": "no-cache", etag, "x-content-type-options": "nosniff" });
  varyBy(reply, "accept-encoding");
  if (headers["if-none-match"] === etag) send(request, reply.code(304), undefined);
  else if (!/\bgzip\b/.test(headers["accept-encoding"] ?? "")) send(request, reply.type(type), plain);
  else send(request, reply.type(type).header("content-encoding", "gzip"), gzipped);
  return reply;
}
