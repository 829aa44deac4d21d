import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { option } from "../../../commands/command-line.js";

/** Where Debian-based systems install each version of PostgreSQL. */
const installRoot = "/usr/lib/postgresql";

const embedded = "embedded";

const binariesFolder = {
  must: `a folder with PostgreSQL binaries, or ${embedded}`,
  read: (text: string) => (text === embedded || existsSync(join(text, "postgres")) ? text : undefined),
};

/** The PostgreSQL that a command uses: the newest installed version, else the embedded one. */
export const postgresOption = option(
  "folder",
  `the PostgreSQL binaries: a folder, or ${embedded}`,
  binariesFolder,
  newestInstalled() ?? embedded,
);

/** Returns the folder of the binaries, or undefined for the embedded ones. */
export function binariesOf(value: string): string | undefined {
  return value === embedded ? undefined : value;
}

function newestInstalled(): string | undefined {
  const versions = existsSync(installRoot) ? readdirSync(installRoot).toSorted((a, b) => Number(b) - Number(a)) : [];
  const folders = versions.map((version) => join(installRoot, version, "bin"));
  return folders.find((folder) => existsSync(join(folder, "postgres")));
}
