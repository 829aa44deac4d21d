import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** A project in which the packed packages are installed. */
export interface Project {
  readonly folder: string;
  /** The installed package of the service. */
  readonly service: string;
  /** The installed package of the client. */
  readonly client: string;
  remove(): void;
}

/** Packs the built packages and installs them with only these packages, so that a missing dependency is found. */
export async function installPackages(packages: readonly string[]): Promise<Project> {
  const root = mkdtempSync(join(tmpdir(), "latchkey-package-"));
  const folder = join(root, "project");
  const service = join(folder, "node_modules/latchkey");
  const client = join(folder, "node_modules/@latchkey/client");
  await Promise.all([
    packService(root).then((tarball) => extract(tarball, service)),
    pack("client", root).then((tarball) => extract(tarball, client)),
  ]);
  for (const name of packages) link(join("node_modules", name), join(folder, "node_modules", name));
  cpSync("examples", join(folder, "examples"), { recursive: true });
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  return { folder, service, client, remove: () => rmSync(root, { recursive: true, force: true }) };
}

/** Packs a copy, because the proto files are exported to dist, which other tests use. */
async function packService(root: string): Promise<string> {
  const copy = join(root, "copy");
  for (const path of ["package.json", "README.md", "CHANGELOG.md", "buf.yaml", "proto", "scripts", "dist"]) {
    cpSync(path, join(copy, path), { recursive: true });
  }
  link("node_modules", join(copy, "node_modules"));
  await run("npm", ["run", "proto:export"], { cwd: copy });
  return pack(copy, root);
}

/** Returns the tarball of a folder. Without its prepack script, which would delete dist under other tests. */
async function pack(folder: string, destination: string): Promise<string> {
  const args = ["pack", "--silent", "--ignore-scripts", "--pack-destination", destination];
  const { stdout } = await run("npm", args, { cwd: folder });
  return join(destination, stdout.trim());
}

async function extract(tarball: string, folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  await run("tar", ["-xzf", tarball, "-C", folder, "--strip-components=1"]);
}

function link(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  symlinkSync(resolve(from), to);
}
