import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { project } from "../commands/project.js";

/** A separate package for the competitors, because Latchkey itself does not depend on them. */
export const competitorsFolder = join(project, "bench/competitors");

/** Installs the locked versions of the competitors, unless they are installed. */
export async function installCompetitors(progress: (text: string) => void): Promise<void> {
  if (isInstalled()) return;
  progress("installing the competitors (npm ci in bench/competitors)");
  await promisify(execFile)("npm", ["ci", "--no-audit", "--no-fund"], { cwd: competitorsFolder });
}

/** npm records what it installed in node_modules. If that differs from the lock file, the installation is outdated. */
function isInstalled(): boolean {
  const installedLockFile = join(competitorsFolder, "node_modules/.package-lock.json");
  if (!existsSync(installedLockFile)) return false;
  const installed = versionsIn(installedLockFile);
  return Object.entries(versionsIn(join(competitorsFolder, "package-lock.json"))).every(
    ([path, { version, optional, peer }]) => path === "" || optional || peer || installed[path]?.version === version,
  );
}

function versionsIn(lockFile: string): Record<string, { version: string; optional?: boolean; peer?: boolean }> {
  return JSON.parse(readFileSync(lockFile, "utf8")).packages;
}
