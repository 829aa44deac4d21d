import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The project's folder, whether this file runs as it was written or as it was built. */
export const project = findProject(dirname(fileURLToPath(import.meta.url)));

function findProject(folder: string): string {
  return existsSync(join(folder, "package.json")) ? folder : findProject(dirname(folder));
}
