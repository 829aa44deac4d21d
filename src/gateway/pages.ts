import { Code } from "@connectrpc/connect";
import type { FastifyInstance } from "fastify";
import {
  catalogue,
  Failure,
  type FailureCode,
  failureCodes,
  invalidInput,
  pathOf,
  reasonOf,
  titleOf,
} from "../errors.js";
import { errorPagePath, failureBody } from "./envelope.js";

/** Serves a page for each error of the catalogue, at the address that the error's `type` names. */
export function errorPages(docsBase: () => string) {
  return async (server: FastifyInstance): Promise<void> => {
    for (const code of failureCodes) {
      server.get(errorPagePath(pathOf(code)), async (_request, reply) =>
        reply.type("text/html; charset=utf-8").send(errorPage(code, docsBase())),
      );
    }
  };
}

function errorPage(code: FailureCode, docsBase: string): string {
  const { status, grpc, when, remedy } = catalogue[code];
  const name = pathOf(code);
  const example = JSON.parse(failureBody(exampleOf(code), "req_01jd9x2m5te4btvz7p3k8n6qwc", docsBase));
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${name} · Latchkey</title>
<style>${style}</style>
</head>
<body>
<main>
<p class="eyebrow">Latchkey error</p>
<h1>${name}</h1>
<p class="status"><b>HTTP ${status}</b> ${titleOf(code)} <span>·</span> ${grpc ? `<b>gRPC</b> ${Code[grpc]} <span>·</span> ` : ""}<b>reason</b> ${reasonOf(code)}</p>
<h2>What happened</h2>
<p>${markup(when)}</p>
<h2>How to mend it</h2>
<p>${markup(remedy)}</p>
<h2>What it looks like</h2>
<pre>${escaped(JSON.stringify(example, null, 2))}</pre>
<h2>All errors</h2>
<ul>${failureCodes
    .map(pathOf)
    .map(
      (path) => `<li><a href="${errorPagePath(path)}"${path === name ? ' aria-current="page"' : ""}>${path}</a></li>`,
    )
    .join("")}</ul>
</main>
</body>
</html>
`;
}

function exampleOf(code: FailureCode): Failure {
  const badField = invalidInput([{ location: "externalId", message: "must not contain control characters" }]);
  return code === badField.code ? badField : new Failure(code, plain(catalogue[code].when));
}

/** The catalogue's sentences mark code with backquotes, as Markdown does. */
function markup(sentence: string): string {
  return escaped(sentence).replace(/`([^`]+)`/g, "<code>$1</code>");
}

function plain(sentence: string): string {
  return sentence.replaceAll("`", "");
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

const style = `
:root { color-scheme: light dark; --ink: light-dark(#1b1d22, #e8e9ed); --soft: light-dark(#5d6270, #a0a5b3);
  --paper: light-dark(#fbfbfc, #15171b); --panel: light-dark(#f0f1f4, #20232a); --link: light-dark(#1d5fbf, #8ab8ff); }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1.05rem/1.6 system-ui, sans-serif; }
main { max-width: 44rem; margin: 0 auto; padding: 3rem 1.25rem; }
.eyebrow { margin: 0; color: var(--soft); }
h1 { margin: 0 0 .5rem; font: 600 1.7rem/1.25 ui-monospace, monospace; overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .25rem; font-size: 1.1rem; }
.status, .status b { color: var(--soft); } .status b { color: var(--ink); }
pre, code { background: var(--panel); border-radius: .35rem; font: .9rem/1.5 ui-monospace, monospace; }
pre { padding: 1rem; overflow-x: auto; } code { padding: .1rem .3rem; }
ul { columns: 2 16rem; padding-left: 1.1rem; } a { color: var(--link); } a[aria-current] { color: var(--soft); text-decoration: none; }
`;
