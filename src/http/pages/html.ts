// Written by hand: the pages do not need what template packages add to these lines (streams, components, caches), and
// here the types distinguish text from markup.

/** Escaped markup, safe to send. Only `html` creates it. */
export interface Markup {
  readonly markup: string;
}

/** A value that `html` can insert into markup. Text is escaped. */
export type Content = string | number | Markup | undefined | readonly Content[];

/** Creates markup. Inserted values are escaped unless they are markup themselves, so escaping cannot be forgotten. */
export function html(literals: TemplateStringsArray, ...contents: readonly Content[]): Markup {
  return { markup: String.raw({ raw: literals }, ...contents.map(escapeContent)) };
}

function escapeContent(content: Content): string {
  if (content === undefined) return "";
  if (typeof content === "number") return String(content);
  if (typeof content === "string") return content.replace(/[&<>"']/g, (character) => entities[character] ?? "");
  return "markup" in content ? content.markup : content.map(escapeContent).join("");
}

const entities: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Renders text in which backquotes mark code. */
export function sentence(text: string): Markup {
  return html`${text.split("`").map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : part))}`;
}

/** Renders a value as JSON, with its member names highlighted. */
export function json(value: unknown): Markup {
  const parts = JSON.stringify(value, null, 2).split(/("(?:[^"\\]|\\.)*"(?=:))/);
  return html`<pre class="json"><code>${parts.map((part, index) => (index % 2 === 1 ? html`<b>${part}</b>` : part))}</code></pre>`;
}

/**
 * Renders a shell command. One click selects all of it, without the prompt. A long line scrolls, also by the keyboard.
 */
export function command(text: string): Markup {
  return html`<pre class="command" tabindex="0"><code>${text}</code></pre>`;
}
