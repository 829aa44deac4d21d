import { cpSync, mkdirSync, renameSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { project } from "../../commands/project.js";

/** Designs that break the promise: each is a module that takes the place of this one, which keeps it. */
const replaced: Readonly<Record<string, string>> = {
  "cache-aside": "holdings",
  "publish-subscribe": "holdings",
  "no-wait": "holdings",
  "no-recheck": "authenticate",
  "no-condition": "authorized-key",
};

export const brokenDesigns = Object.keys(replaced);

/** The folder of the service as it was built. */
export const built = join(project, "dist");

/** Makes a copy of the built service below `folder` with a broken design in it, and returns where it is. */
export function installDesign(name: string, folder: string): string {
  const home = join(folder, name);
  const dist = join(home, "dist");
  mkdirSync(dist, { recursive: true });
  for (const part of ["src", "gen"]) cpSync(join(built, part), join(dist, part), { recursive: true });
  cpSync(join(project, "package.json"), join(home, "package.json"));
  symlinkSync(join(project, "node_modules"), join(home, "node_modules"), "dir");
  // The module must be there, or nothing would be replaced; a design may build upon it.
  const module = join(dist, "src/auth", `${replaced[name]}`);
  renameSync(`${module}.js`, `${module}.as-built.js`);
  cpSync(join(project, "test/faults/designs", `${name}.mjs`), `${module}.js`);
  return dist;
}
