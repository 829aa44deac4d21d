import { existsSync, readFileSync } from "node:fs";

/** The running version, from package.json. The built code is one folder deeper than the source. */
export const version: string = JSON.parse(readFileSync(packageFile(), "utf8")).version;

function packageFile(): URL {
  const sourcePath = new URL("../../package.json", import.meta.url);
  return existsSync(sourcePath) ? sourcePath : new URL("../../../package.json", import.meta.url);
}
