import {
  type ApiErrorCode,
  type Category,
  catalogue,
  categoryOf,
  errorCodes,
  grpcNameOf,
  pathOf,
  reasonOf,
  titleOf,
} from "../../errors.js";
import { errorBody, errorPagePath } from "../json/envelope.js";
import { errorDocs } from "./error-docs.js";
import { type Example, examples } from "./examples.js";
import { command, html, json, type Markup, sentence } from "./html.js";
import { type Page, paths } from "./layout.js";

/** A description of each error category, in the order in which a call is checked. */
const categories: Record<Category, string> = {
  authentication: "The caller cannot be identified.",
  authorization: "The caller is known but not allowed to do this.",
  limits: "The caller is known but exceeds a rate limit or a quota.",
  data: "The resource does not exist, or it exists already.",
  application: "The request is not valid, or the service cannot serve it now.",
};

const byCategory = (Object.keys(categories) as Category[]).map((category) => ({
  category,
  codes: errorCodes.filter((code) => categoryOf(code) === category),
}));

/** The page about one error: what happened, why, and how to fix it. */
export function errorPage(code: ApiErrorCode, docsBase: string, api: string): Page {
  const { when, causes, remedy, seeAlso } = errorDocs[code];
  const { answer, effect, precondition, command: shellCommand } = examples[code];
  const category = categoryOf(code);
  return {
    title: `${pathOf(code)} · Latchkey`,
    navPath: paths.errors,
    main: html`<p class="above"><a href="${paths.errors}#${category}">${category}</a></p>
<h1 class="code">${nameOf(code)}</h1>
<p class="lead">${sentence(when)}</p>
${factsOf(code)}
<h2>Why it happens</h2>
<ul>${causes.map((cause) => html`<li>${sentence(cause)}</li>`)}</ul>
<h2>How to fix it</h2>
<p>${sentence(remedy)}</p>
<h2>Example response</h2>
${json(JSON.parse(errorBody(answer, "req_01jd9x2m5te4btvz7p3k8n6qwc", docsBase)))}
<h2>${headings[effect]}</h2>
<p>${sentence(precondition)}</p>
${command(shellCommand.replaceAll("$API", api))}
<h2>See also</h2>
${errorList(seeAlso)}`,
    aside: errorNavigation(code),
  };
}

const headings: Record<Example["effect"], string> = {
  reproduces: "Reproduce this error",
  recovers: "Recover from this error",
};

/** The page that lists all errors, by category. */
export function errorIndex(): Page {
  return {
    title: "Errors · Latchkey",
    navPath: paths.errors,
    main: html`<div class="hero">
<h1>Errors</h1>
<p class="lead">Every error that a call can return. The <code>type</code> of an error is the URL of its page here.</p>
</div>
${byCategory.map(
  ({ category, codes }) => html`<section class="row" aria-labelledby="${category}">
<div>
<h2 id="${category}">${category}</h2>
<p>${categories[category]}</p>
</div>
${errorList(codes)}
</section>
`,
)}`,
  };
}

function factsOf(code: ApiErrorCode): Markup {
  const grpc = grpcNameOf(code);
  return html`<dl class="facts">
<div><dt>HTTP</dt><dd>${catalogue[code].status} ${titleOf(code)}</dd></div>
<div><dt>gRPC</dt><dd>${grpc ? html`<code>${grpc}</code>` : "over HTTP only"}</dd></div>
<div><dt>Reason</dt><dd><code>${reasonOf(code)}</code></dd></div>
</dl>`;
}

function errorList(codes: readonly ApiErrorCode[]): Markup {
  return html`<ul class="lines">
${codes.map(
  (code) => html`<li><a href="${errorPagePath(pathOf(code))}"><code>${categoryOf(code)}/<wbr>${nameOf(code)}</code></a>
<span class="status">${catalogue[code].status}</span>
<p>${sentence(errorDocs[code].when)}</p></li>
`,
)}</ul>`;
}

function errorNavigation(current: ApiErrorCode): Markup {
  return html`<nav class="aside" aria-labelledby="all-errors">
<h2 id="all-errors">All errors</h2>
${byCategory.map(
  ({ category, codes }) => html`<section>
<h3>${category}</h3>
<ul>
${codes.map(
  (code) =>
    html`<li><a href="${errorPagePath(pathOf(code))}"${code === current ? html` aria-current="page"` : ""}>${nameOf(code)}</a></li>
`,
)}</ul>
</section>
`,
)}</nav>`;
}

function nameOf(code: ApiErrorCode): string {
  return reasonOf(code).toLowerCase();
}
