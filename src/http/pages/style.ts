import { html } from "./html.js";

/** The style of all pages: paper, ink and brass colours. It loads no fonts and no images. */
export const style = html`
:root {
  color-scheme: light dark;
  --paper: light-dark(#fbf9f5, #171510);
  --panel: light-dark(#f2ede3, #211e17);
  --rule: light-dark(#ddd5c5, #3a3529);
  --ink: light-dark(#221e17, #ece6d9);
  --soft: light-dark(#655d4e, #aba18d);
  --brass: light-dark(#835509, #e2b45a);
  --serif: ui-serif, "Iowan Old Style", "Palatino Linotype", Palatino, "Liberation Serif", Georgia, serif;
  --mono: ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "Liberation Mono", monospace;
}
*, ::before, ::after { box-sizing: border-box; }
html { scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 0 clamp(1.1rem, 4vw, 2.5rem); max-width: 72rem;
  background: var(--paper); color: var(--ink);
  font: 1.0625rem/1.6 system-ui, "Liberation Sans", sans-serif; overflow-wrap: break-word;
}

a { color: var(--brass); text-decoration-thickness: 1px; text-underline-offset: .2em; }
a:hover { text-decoration-thickness: 2px; }
:focus-visible { outline: 3px solid var(--brass); outline-offset: 3px; border-radius: 3px; }
.skip { position: absolute; left: -100vw; }
.skip:focus { left: 1rem; top: .5rem; padding: .3rem .8rem; background: var(--paper); }

header {
  display: flex; flex-wrap: wrap; align-items: center; justify-content: space-between; gap: .4rem 1.5rem;
  padding: 1.1rem 0; border-bottom: 1px solid var(--rule);
}
.brand {
  display: inline-flex; align-items: center; gap: .6rem;
  color: var(--ink); font: 600 1.25rem/1 var(--serif); text-decoration: none;
}
.logo { width: 1.75rem; height: 1.75rem; }
header ul { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; margin: 0; padding: 0; list-style: none; }
header li a { display: block; padding: .25rem 0; color: var(--soft); text-decoration: none; }
header li a:hover, header li a[aria-current] { color: var(--ink); text-decoration: underline; }
header li a[aria-current] { text-decoration-color: var(--brass); text-decoration-thickness: 2px; }

main { min-width: 0; padding: clamp(2rem, 6vw, 4rem) 0; }
h1, h2 { font-family: var(--serif); font-weight: 600; line-height: 1.2; text-wrap: balance; }
h1 { margin: 0 0 1rem; font-size: clamp(2.2rem, 7vw, 3.2rem); letter-spacing: -.015em; }
h1.code { font: 600 clamp(1.45rem, 5.4vw, 2.3rem)/1.2 var(--mono); letter-spacing: -.03em; overflow-wrap: anywhere; }
h2 { margin: 2.75rem 0 .6rem; font-size: 1.45rem; }
p { margin: 0 0 .8rem; }
p, ul { max-width: 42rem; }
ul { margin: 0; padding-left: 1.2rem; }
li { margin: .25rem 0; }
li::marker { color: var(--brass); }
.above { margin-bottom: .3rem; }
.lead { margin-bottom: 1.2rem; color: var(--soft); font: 1.25rem/1.5 var(--serif); text-wrap: pretty; }
.running { display: inline-block; padding: .15rem .8rem; border: 1px solid var(--rule); border-radius: 2rem; font-size: .95rem; }

code { padding: .1em .35em; border-radius: .3em; background: var(--panel); font: .88em/1.5 var(--mono); overflow-wrap: anywhere; }
a code { padding: 0; background: none; }
a:has(code), .aside a { text-underline-offset: .4em; }
pre {
  margin: 0; padding: 1rem 1.15rem; overflow-x: auto; border: 1px solid var(--rule); border-radius: .6rem;
  background: var(--panel); font: .875rem/1.6 var(--mono);
}
pre code { padding: 0; background: none; font: inherit; overflow-wrap: normal; }
pre b { color: var(--brass); font-weight: inherit; }
.json { white-space: pre-wrap; overflow-wrap: anywhere; }
.json code { overflow-wrap: inherit; }
.command code { -webkit-user-select: all; user-select: all; }
.command code::before { content: "$ "; color: var(--brass); }

.facts { display: flex; flex-wrap: wrap; gap: .75rem 2.5rem; margin: 1.5rem 0 0; padding: 1rem 0; border: solid var(--rule); border-width: 1px 0; }
.facts dt { color: var(--soft); font-size: .875rem; }
.facts dd { margin: 0; font-weight: 600; }
.facts code { padding: 0; background: none; font-weight: 600; }

.lines { max-width: none; padding: 0; list-style: none; border-top: 1px solid var(--rule); }
.lines li {
  display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: .15rem 1rem; margin: 0; padding: .75rem 0;
  border-bottom: 1px solid var(--rule);
}
.lines p { grid-column: 1 / -1; margin: 0; color: var(--soft); font-size: 1rem; }
.lines > li > a { justify-self: start; font-weight: 600; }
.status { color: var(--soft); font: .9rem/1.8 var(--mono); }

.row { padding: 2rem 0; border-top: 1px solid var(--rule); }
.row > * { min-width: 0; }
.row h2 { margin-top: 0; }
.row p { color: var(--soft); }
.row .lines { border-top: 0; }
.row .lines li:first-child { padding-top: 0; }
.row .lines li:last-child { padding-bottom: 0; border-bottom: 0; }
.hero { padding: 0 0 2.5rem; border-top: 0; }
.hero .logo { display: none; }

.aside { columns: 12rem; padding: 2rem 0; border-top: 1px solid var(--rule); font-size: .95rem; }
.aside h2 { column-span: all; margin: 0; font-size: 1.15rem; }
.aside section { break-inside: avoid; padding-top: 1.1rem; }
.aside h3 { margin: 0 0 .2rem; color: var(--soft); font: 600 .875rem/1.5 system-ui, "Liberation Sans", sans-serif; }
.aside ul { padding: 0; list-style: none; }
.aside li { margin: 0; }
.aside a { display: inline-block; padding: .1rem 0; color: var(--ink); font: .85rem/1.6 var(--mono); text-decoration: none; }
.aside a:hover { text-decoration: underline; }
.aside a[aria-current] { color: var(--brass); font-weight: 600; }

footer { border-top: 1px solid var(--rule); padding: 1.1rem 0 2rem; color: var(--soft); font-size: .9rem; }
footer p { margin: 0; }

@media (width >= 60rem) {
  .row, .with-aside { display: grid; grid-template-columns: 15rem minmax(0, 1fr); gap: 3.5rem; }
  .row { align-items: start; }
  .hero .logo { display: block; width: 9rem; height: 9rem; margin: .4rem 0 0; }
  .aside { grid-area: 1 / 1; columns: auto; padding: 4.3rem 0 2rem; border: 0; border-right: 1px solid var(--rule); }
  .with-aside main { grid-area: 1 / 2; }
}

@media print {
  :root { color-scheme: light; --paper: #fff; }
  .skip, header nav, .aside { display: none; }
  body { max-width: none; padding: 0; font-size: 11pt; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; break-inside: avoid; }
  h2 { break-after: avoid; }
}
`;
