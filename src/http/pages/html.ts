// Written by hand: what the packages for this do beyond these lines (streams, components, caches), the pages do not need,
// and here the compiler tells text from markup.

/** Markup that may be sent as it is. Only `html` makes it. */
export interface Markup {
  readonly markup: string;
}

/** What may stand in markup. Text is escaped. */
export type Content = string | number | Markup | undefined | readonly Content[];

/** Writes markup. Whatever is put into it is escaped, unless it is markup itself: to forget about it is safe. */
export function html(literals: TemplateStringsArray, ...contents: readonly Content[]): Markup {
  return { markup: String.raw({ raw: literals }, ...contents.map(write)) };
}

function write(content: Content): string {
  if (content === undefined) return "";
  if (typeof content === "number") return String(content);
  if (typeof content === "string") return content.replace(/[&<>"']/g, (character) => entities[character] ?? "");
  return "markup" in content ? content.markup : content.map(write).join("");
}

const entities: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** A sentence that marks code with backquotes. */
export function sentence(text: string): Markup {
  return html`${text.split("`").map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : part))}`;
}

/** A value as JSON, its names set apart. */
export function json(value: unknown): Markup {
  const parts = JSON.stringify(value, null, 2).split(/("(?:[^"\\]|\\.)*"(?=:))/);
  return html`<pre class="json"><code>${parts.map((part, index) => (index % 2 === 1 ? html`<b>${part}</b>` : part))}</code></pre>`;
}

/** A command for the shell. One click selects all of it, without the prompt; a long line scrolls, by the keyboard too. */
export function command(text: string): Markup {
  return html`<pre class="command" tabindex="0"><code>${text}</code></pre>`;
}
