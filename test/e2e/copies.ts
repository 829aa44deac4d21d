import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { project } from "./service.js";

/**
 * Copies the sources that `npm start` builds, with a link to the checkout's packages. A build there affects no other
 * test.
 */
export function copySources(target: string): void {
  mkdirSync(target);
  const configurations = readdirSync(project).filter((name) => /^(package|tsconfig.*)\.json$/.test(name));
  for (const name of [...configurations, "src", "gen", "scripts"])
    cpSync(join(project, name), join(target, name), { recursive: true });
  symlinkSync(join(project, "node_modules"), join(target, "node_modules"));
}

/**
 * Copies the built service with all packages that it needs at run time. No link in the copy points outside of it.
 *
 * @param embedded whether it includes the optional packages, which are the embedded backends
 */
export function copyInstallation(target: string, { embedded } = { embedded: true }): void {
  const lock = JSON.parse(readFileSync(join(project, "package-lock.json"), "utf8"));
  const installed = Object.entries<{ dev?: boolean; optional?: boolean; devOptional?: boolean }>(lock.packages);
  const packages = installed.flatMap(([path, { dev, optional, devOptional }]) => {
    const isOmitted = dev || (!embedded && (optional || devOptional));
    return path.startsWith("node_modules/") && !isOmitted && existsSync(join(project, path)) ? [path] : [];
  });
  for (const path of ["package.json", "dist", ...packages]) {
    mkdirSync(dirname(join(target, path)), { recursive: true });
    // Many times faster than cpSync, which copies file by file in JavaScript on Node 20.
    const { status, stderr } = spawnSync("cp", ["-RP", join(project, path), join(target, path)], { encoding: "utf8" });
    if (status !== 0) throw new Error(`cannot copy ${path}: ${stderr}`);
  }
}
