import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { project } from "./project.js";

/** A built service. */
export interface Installed {
  readonly dist: string;
}

/** Something that makes the built service another one. */
type Alteration =
  /** A module of the service gives way to one of ours. */
  | { readonly kind: "module"; readonly file: string; readonly by: string }
  /** A text of a module gives way to another. It must be there exactly once, or the alteration would be none. */
  | { readonly kind: "text"; readonly file: string; readonly text: string; readonly by: string };

/** Designs that break the promise, each in the way that its name says. */
const designs: Readonly<Record<string, readonly Alteration[]>> = {
  "as it is": [],
};

export const designNames = Object.keys(designs);

/** Returns the service as it was built, or an altered copy below `folder`. */
export function installDesign(name: string, folder: string): Installed {
  const alterations = designs[name] ?? [];
  const built = join(project, "dist");
  if (alterations.length === 0) return { dist: built };
  const home = join(folder, name.replaceAll(" ", "-"));
  const dist = join(home, "dist");
  mkdirSync(dist, { recursive: true });
  for (const part of ["src", "gen"]) cpSync(join(built, part), join(dist, part), { recursive: true });
  cpSync(join(project, "package.json"), join(home, "package.json"));
  symlinkSync(join(project, "node_modules"), join(home, "node_modules"), "dir");
  for (const alteration of alterations) alter(dist, alteration);
  return { dist };
}

function alter(dist: string, alteration: Alteration): void {
  const file = join(dist, alteration.file);
  if (alteration.kind === "module") {
    readFileSync(file); // it must be there, or nothing would be replaced
    cpSync(join(project, "test/faults/designs", alteration.by), file);
    return;
  }
  const parts = readFileSync(file, "utf8").split(alteration.text);
  if (parts.length !== 2) throw new Error(`${alteration.file} holds "${alteration.text}" ${parts.length - 1} times`);
  writeFileSync(file, parts.join(alteration.by));
}
