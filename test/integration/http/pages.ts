import { errorCodes, pathOf } from "../../../src/errors.js";
import { type HttpResponse, send } from "../../support/clients/http-requests.js";

/** The path of the list of errors. The page of each error is below it. */
export const errorsPath = "/api-reference/errors-v2/service";

/** The paths of all HTML pages. */
export const pagePaths = ["/", errorsPath, ...errorCodes.map((code) => `${errorsPath}/${pathOf(code)}`)];

/** Opens a page as a browser would, without a credential. */
export function open(origin: string, path: string): Promise<HttpResponse> {
  return send(origin, path, { method: "GET", headers: { accept: "text/html,application/xhtml+xml,*/*;q=0.8" } });
}

/** The text of some markup, without tags and styles. */
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

/** The texts of all blocks of a kind on a page. */
export function blocksOf(kind: "json" | "command", html: string): string[] {
  return [...html.matchAll(new RegExp(`<pre class="${kind}"[^>]*>(.*?)</pre>`, "gs"))].map(([, block = ""]) =>
    visibleText(block),
  );
}
