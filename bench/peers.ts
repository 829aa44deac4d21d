import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { project } from "../commands/project.js";

/** What Latchkey is held against and does not itself depend on: a package of its own. */
export const peersFolder = join(project, "bench/peers");

/** Installs the peers as their lock file has them, unless that has been done. */
export async function installPeers(progress: (text: string) => void): Promise<void> {
  if (isInstalled()) return;
  progress("installing the peers (npm ci in bench/peers)");
  await promisify(execFile)("npm", ["ci", "--no-audit", "--no-fund"], { cwd: peersFolder });
}

/** npm leaves what it installed beside it; the versions there are those that were locked, or it is out of date. */
function isInstalled(): boolean {
  const installed = join(peersFolder, "node_modules/.package-lock.json");
  if (!existsSync(installed)) return false;
  const there = versionsIn(installed);
  return Object.entries(versionsIn(join(peersFolder, "package-lock.json"))).every(
    ([path, { version, optional, peer }]) => path === "" || optional || peer || there[path]?.version === version,
  );
}

function versionsIn(lockFile: string): Record<string, { version: string; optional?: boolean; peer?: boolean }> {
  return JSON.parse(readFileSync(lockFile, "utf8")).packages;
}
