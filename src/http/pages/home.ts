import { version } from "../../observe/version.js";
import type { Addresses } from "./addresses.js";
import { command, html, type Markup, sentence } from "./html.js";
import { logo, type Page, paths } from "./layout.js";

/** The home page: the running version, the protocols with example calls, and links to the other pages. */
export function homePage(addresses: Addresses): Page {
  const { http, grpc } = addresses;
  return {
    title: "Latchkey: API keys for your services",
    main: html`<div class="row hero">
${logo}
<div>
<h1>API keys for your services</h1>
<p class="lead">gRPC, Connect and HTTP/JSON from one definition, with immediate revocation.</p>
<p class="running">Running Latchkey ${version}</p>
</div>
</div>
${[
  row(
    "Get a key",
    "The first start writes a key to a file. If this is not your installation, ask its operator for one.",
    command("KEY=$(cat .latchkey/first.key)"),
  ),
  row("HTTP/JSON", `For external clients, at \`${http}\``, command(httpCall(addresses))),
  row("gRPC", `For internal services, at \`${grpc}\`, with server reflection`, command(grpcCall(addresses))),
  row("Connect, gRPC-Web", `For browsers and TypeScript, at \`${http}\``, command(connectCall(addresses))),
  row("Next steps", "All protocols return the same results and the same errors.", nextSteps),
]}`,
  };
}

/** The content of the home page as JSON, for programs and for curl. */
export function homeData({ http, grpc }: Addresses) {
  return {
    name: "Latchkey",
    version,
    protocols: { http, connect: http, grpc },
    links: {
      reference: http + paths.reference,
      openapi: http + paths.openapi,
      errors: http + paths.errors,
      live: http + paths.live,
      ready: http + paths.ready,
    },
  };
}

function row(title: string, description: string, content: Markup): Markup {
  const id = title.toLowerCase().replace(/[^a-z]+/g, "-");
  return html`<section class="row" aria-labelledby="${id}">
<div>
<h2 id="${id}">${title}</h2>
<p>${sentence(description)}</p>
</div>
${content}
</section>
`;
}

function httpCall({ http }: Addresses): string {
  return `curl -X POST ${http}/v1/keys.listKeys \\
  -H "Authorization: Bearer $KEY"`;
}

function grpcCall({ grpc, grpcOverTls }: Addresses): string {
  return `npx @bufbuild/buf curl --protocol grpc ${grpcOverTls ? "" : "--http2-prior-knowledge "}\\
  -H "Authorization: Bearer $KEY" \\
  ${grpcOverTls ? "https" : "http"}://${grpc}/latchkey.v1.KeysService/ListKeys`;
}

function connectCall({ http }: Addresses): string {
  return `curl ${http}/latchkey.v1.KeysService/ListKeys \\
  -H "Authorization: Bearer $KEY" \\
  -H 'Content-Type: application/json' -d '{}'`;
}

const nextSteps = html`<ul class="lines">
<li><a href="${paths.reference}">Reference</a>
<p>Every operation, with its documentation and a form to try it in the browser.</p></li>
<li><a href="${paths.errors}">Errors</a> <p>What each one means, why it happens and how to fix it.</p></li>
<li><a href="${paths.openapi}">OpenAPI</a> <p>The same interface for your tools, as an OpenAPI 3.1 document.</p></li>
<li><a href="${paths.ready}">Ready?</a>
<p>Whether the service can verify keys now.
<a href="${paths.live}">Alive?</a> reports whether the process is running.</p></li>
</ul>`;
