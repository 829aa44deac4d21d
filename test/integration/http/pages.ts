import { errorCodes, pathOf } from "../../../src/errors.js";
import { type Answer, ask } from "../../support/clients/http-requests.js";

/** Where the errors are listed; the page of each lies below. */
export const errorsPath = "/api-reference/errors-v2/service";

/** Every page that people open. */
export const pagePaths = ["/", errorsPath, ...errorCodes.map((code) => `${errorsPath}/${pathOf(code)}`)];

/** Opens a page as a browser would, without a credential. */
export function open(origin: string, path: string): Promise<Answer> {
  return ask(origin, path, { method: "GET", headers: { accept: "text/html,application/xhtml+xml,*/*;q=0.8" } });
}

/** What a reader sees of some markup. */
export function visibleText(html: string): string {
  return html
    .replace(/<style>.*?<\/style>/gs, "")
    .replace(/<[^>]+>/g, "")
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&quot;", '"')
    .replaceAll("&#39;", "'")
    .replaceAll("&amp;", "&");
}

/** What the blocks of a kind on a page say. */
export function blocksOf(kind: "json" | "command", html: string): string[] {
  return [...html.matchAll(new RegExp(`<pre class="${kind}"[^>]*>(.*?)</pre>`, "gs"))].map(([, block = ""]) =>
    visibleText(block),
  );
}
