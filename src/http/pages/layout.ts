import { errorsPath } from "../json/envelope.js";
import { html, type Markup } from "./html.js";
import { style } from "./style.js";
import { version } from "./version.js";

/** Where the links of the pages lead. */
export const paths = {
  home: "/",
  reference: "/docs",
  openapi: "/openapi.json",
  errors: errorsPath,
  live: "/livez",
  ready: "/readyz",
  icon: "/favicon.svg",
} as const;

/** One page, before it is laid out. */
export interface Page {
  readonly title: string;
  /** Which link of the header leads to this page, or to what it belongs to. */
  readonly place?: string;
  /** What its head has beyond that of all pages. */
  readonly head?: Markup;
  readonly main: Markup;
  /** What stands beside the main part where there is room, and below it where there is none. */
  readonly aside?: Markup;
}

/** Lays a page out: the frame that all of them have. */
export function renderPage({ title, place, head, main, aside }: Page): string {
  const link = (path: string, text: string) =>
    html`<li><a href="${path}"${path === place ? html` aria-current="true"` : ""}>${text}</a></li>`;
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<link rel="icon" href="${paths.icon}" type="image/svg+xml">
<style>${style}</style>
${head}
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<a class="brand" href="${paths.home}">${logo} Latchkey</a>
<nav aria-label="Latchkey"><ul>
${[link(paths.reference, "Reference"), link(paths.errors, "Errors"), link(paths.openapi, "OpenAPI")]}
</ul></nav>
</header>
<div${aside && html` class="with-aside"`}>
<main id="main">
${main}
</main>
${aside}
</div>
<footer><p>Latchkey ${version}</p></footer>
</body>
</html>
`.markup;
}

/** A keyhole. */
const keyhole = html`<path fill="#b07a1e" d="M8 0h16a8 8 0 0 1 8 8v16a8 8 0 0 1-8 8H8a8 8 0 0 1-8-8V8a8 8 0 0 1 8-8z"/>
<path fill="#fffaf0" d="M16 6.5a5.6 5.6 0 0 0-2.9 10.4L11.5 25.5h9l-1.6-8.6A5.6 5.6 0 0 0 16 6.5z"/>`;

/** The logo, as large as the style says. */
export const logo = html`<svg class="logo" viewBox="0 0 32 32" aria-hidden="true">${keyhole}</svg>`;

/** The logo as a file. */
export const icon = html`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${keyhole}</svg>`.markup;
