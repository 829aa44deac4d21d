import { existsSync, readFileSync } from "node:fs";

/** Which version runs, as package.json says; the built code lies one folder deeper than the source. */
export const version: string = JSON.parse(readFileSync(packageFile(), "utf8")).version;

function packageFile(): URL {
  const beside = new URL("../../../package.json", import.meta.url);
  return existsSync(beside) ? beside : new URL("../../../../package.json", import.meta.url);
}
