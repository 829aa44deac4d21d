// The reference of the HTTP/JSON interface, for programs and for people. Six files that are known by name are served by
// hand: nothing that a caller writes ever names a file, so there is no need for a server of folders.
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { SendBody } from "../call.js";
import { html } from "./html.js";
import { paths, renderPage } from "./layout.js";

/** What the error URLs in the generated document begin with; where it is served, they begin with the real address. */
export const exampleDocsBase = "http://127.0.0.1:8080";

/** Serves the OpenAPI document at `/openapi.json`, and at `/docs` a page to read it and to try calls. */
export function apiReference(docsBase: () => string, send: SendBody) {
  return async (server: FastifyInstance): Promise<void> => {
    const document = asset(async () => {
      const text = await readFile(new URL("../../../gen/openapi.json", import.meta.url), "utf8");
      return Buffer.from(text.replaceAll(`"${exampleDocsBase}/`, `"${docsBase()}/`));
    });
    server.get(paths.openapi, (request, reply) => sendAsset(request, reply, "application/json", document, send));

    for (const [path, { type, read }] of Object.entries(pageFiles)) {
      const content = asset(read);
      server.get(path, (request, reply) => {
        reply.header("content-security-policy", onlyFromHere).header("referrer-policy", "no-referrer");
        return sendAsset(request, reply, type, content, send);
      });
    }
  };
}

/** Scripts, styles and calls of this service alone: whatever is typed into the page, a key included, stays here. */
const onlyFromHere = [
  "default-src 'self'",
  "style-src 'self' 'unsafe-inline'", // Swagger UI sets styles on its elements
  "img-src 'self' data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const pageFiles: Record<string, { type: string; read: () => Promise<Buffer> }> = {
  [paths.reference]: { type: "text/html; charset=utf-8", read: async () => Buffer.from(renderPage(page)) },
  "/docs/page.css": { type: "text/css; charset=utf-8", read: own("page.css") },
  "/docs/page.js": { type: "text/javascript; charset=utf-8", read: own("page.js") },
  "/docs/swagger-ui.css": { type: "text/css; charset=utf-8", read: swaggerUi("swagger-ui.css") },
  "/docs/swagger-ui.js": { type: "text/javascript; charset=utf-8", read: swaggerUi("swagger-ui-bundle.js") },
};

/** Swagger UI in the frame of all pages. */
const page = {
  title: "Reference · Latchkey",
  place: paths.reference,
  head: html`<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="stylesheet" href="/docs/page.css">
<script src="/docs/swagger-ui.js" defer></script>
<script src="/docs/page.js" defer></script>`,
  main: html`<div id="reference">
<noscript>This page needs JavaScript. The same is told by <a href="${paths.openapi}">${paths.openapi}</a>.</noscript>
</div>`,
};

function own(name: string): () => Promise<Buffer> {
  return () => readFile(new URL(`./assets/${name}`, import.meta.url));
}

function swaggerUi(name: string): () => Promise<Buffer> {
  return () => readFile(createRequire(import.meta.url).resolve(`swagger-ui-dist/${name}`));
}

interface Asset {
  readonly plain: Buffer;
  readonly zipped: Buffer;
  readonly etag: string;
}

const compress = promisify(gzip);

/** Made when it is first asked for, so that a start pays nothing, and kept from then on; a failure is not kept. */
function asset(read: () => Promise<Buffer>): () => Promise<Asset> {
  let made: Promise<Asset> | undefined;
  const make = async () => {
    const plain = await read();
    const hash = createHash("sha256").update(plain).digest("base64url");
    return { plain, zipped: await compress(plain), etag: `W/"${hash}"` };
  };
  return () => {
    made ??= make().catch((error) => {
      made = undefined;
      throw error;
    });
    return made;
  };
}

/** Browsers may keep it, and ask each time whether it is still the same. */
async function sendAsset(
  request: FastifyRequest,
  reply: FastifyReply,
  type: string,
  content: () => Promise<Asset>,
  send: SendBody,
): Promise<FastifyReply> {
  const { headers } = request;
  const { plain, zipped, etag } = await content();
  reply.headers({
    "cache-control": "no-cache",
    etag,
    vary: "accept-encoding",
    "x-content-type-options": "nosniff",
  });
  if (headers["if-none-match"] === etag) send(request, reply.code(304), undefined);
  else if (!/\bgzip\b/.test(headers["accept-encoding"] ?? "")) send(request, reply.type(type), plain);
  else send(request, reply.type(type).header("content-encoding", "gzip"), zipped);
  return reply;
}
