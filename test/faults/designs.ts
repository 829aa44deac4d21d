import { cpSync, mkdirSync, renameSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { project } from "../../commands/project.js";

/** Designs that break the promise: each is a module that takes the place of the one that keeps it. */
export const brokenDesigns: readonly string[] = ["cache-aside", "publish-subscribe", "no-wait"];

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
  renameSync(join(dist, "src/auth/holdings.js"), join(dist, "src/auth/holdings.as-built.js"));
  cpSync(join(project, "test/faults/designs", `${name}.mjs`), join(dist, "src/auth/holdings.js"));
  return dist;
}
