import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** A project in which the packed package is installed. */
export interface Project {
  readonly folder: string;
  /** The installed package. */
  readonly package: string;
  remove(): void;
}

/** Packs the built package and installs it with only these packages, so that a missing dependency is found. */
export async function installPackage(packages: readonly string[]): Promise<Project> {
  const root = mkdtempSync(join(tmpdir(), "latchkey-package-"));
  const folder = join(root, "project");
  const installed = join(folder, "node_modules/latchkey");
  mkdirSync(installed, { recursive: true });
  await run("tar", ["-xzf", await pack(root), "-C", installed, "--strip-components=1"]);
  for (const name of packages) link(join("node_modules", name), join(folder, "node_modules", name));
  cpSync("examples", join(folder, "examples"), { recursive: true });
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  return { folder, package: installed, remove: () => rmSync(root, { recursive: true, force: true }) };
}

/** Returns the tarball. Packs a copy, because the prepack script of `npm pack` would delete dist under other tests. */
async function pack(root: string): Promise<string> {
  const copy = join(root, "copy");
  for (const path of ["package.json", "README.md", "CHANGELOG.md", "buf.yaml", "proto", "scripts", "dist"]) {
    cpSync(path, join(copy, path), { recursive: true });
  }
  link("node_modules", join(copy, "node_modules"));
  await run("npm", ["run", "proto:export"], { cwd: copy });
  const { stdout } = await run("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", root], {
    cwd: copy,
  });
  return join(root, stdout.trim());
}

function link(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  symlinkSync(resolve(from), to);
}
