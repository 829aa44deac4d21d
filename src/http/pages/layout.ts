import { version } from "../../observe/version.js";
import { errorsPath } from "../json/envelope.js";
import { html, type Markup } from "./html.js";
import { style } from "./style.js";

/** The paths that the pages link to. */
export const paths = {
  home: "/",
  reference: "/docs",
  openapi: "/openapi.json",
  errors: errorsPath,
  live: "/livez",
  ready: "/readyz",
  icon: "/favicon.svg",
} as const;

/** The content of one page, without the common layout. */
export interface Page {
  readonly title: string;
  /** The path of the header link that is marked as current: this page, or the section that it belongs to. */
  readonly navPath?: string;
  /** Elements for `<head>` in addition to those of all pages. */
  readonly head?: Markup;
  readonly main: Markup;
  /** Shown beside the main part on wide screens, and below it on narrow ones. */
  readonly aside?: Markup;
}

/** Renders a page in the layout that all pages share. */
export function renderPage({ title, navPath, head, main, aside }: Page): string {
  const link = (path: string, text: string) =>
    html`<li><a href="${path}"${path === navPath ? html` aria-current="true"` : ""}>${text}</a></li>`;
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
<a class="skip" href="#main">Skip to content</a>
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

/** The keyhole symbol of the logo. */
const keyhole = html`<path fill="#b07a1e" d="M8 0h16a8 8 0 0 1 8 8v16a8 8 0 0 1-8 8H8a8 8 0 0 1-8-8V8a8 8 0 0 1 8-8z"/>
<path fill="#fffaf0" d="M16 6.5a5.6 5.6 0 0 0-2.9 10.4L11.5 25.5h9l-1.6-8.6A5.6 5.6 0 0 0 16 6.5z"/>`;

/** The logo for the pages. The style sets its size. */
export const logo = html`<svg class="logo" viewBox="0 0 32 32" aria-hidden="true">${keyhole}</svg>`;

/** The logo as an SVG file. */
export const icon = html`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${keyhole}</svg>`.markup;
