import { cpSync, mkdirSync, renameSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { project } from "../../commands/project.js";

/** Designs that break the promise: each is a module that takes the place of this one below src, which keeps it. */
const replaced: Readonly<Record<string, string>> = {
  "cache-aside": "auth/holdings",
  "publish-subscribe": "auth/holdings",
  "no-wait": "auth/holdings",
  "no-recheck": "auth/authenticate",
  "no-condition": "auth/authorized-key",
};

export const brokenDesigns = Object.keys(replaced);

/** The folder of the service as it was built. */
export const built = join(project, "dist");

/** Makes a copy of the built service below `folder` with a broken design in it, and returns where it is. */
export function installDesign(name: string, folder: string): string {
  return installModule(join("test/faults/designs", `${name}.mjs`), `${replaced[name]}`, join(folder, name));
}

/** The same for any file that takes the place of a module below src, in a new folder. */
export function installModule(file: string, replacedModule: string, home: string): string {
  const dist = join(home, "dist");
  mkdirSync(dist, { recursive: true });
  for (const part of ["src", "gen"]) cpSync(join(built, part), join(dist, part), { recursive: true });
  cpSync(join(project, "package.json"), join(home, "package.json"));
  symlinkSync(join(project, "node_modules"), join(home, "node_modules"), "dir");
  // The module must be there, or nothing would be replaced; a design may build upon it.
  const module = join(dist, "src", replacedModule);
  renameSync(`${module}.js`, `${module}.as-built.js`);
  cpSync(join(project, file), `${module}.js`);
  return dist;
}
