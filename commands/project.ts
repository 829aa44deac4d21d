import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The root folder of the project, whether this file runs from source or from dist. */
export const project = findProjectRoot(dirname(fileURLToPath(import.meta.url)));

function findProjectRoot(folder: string): string {
  return existsSync(join(folder, "package.json")) ? folder : findProjectRoot(dirname(folder));
}
