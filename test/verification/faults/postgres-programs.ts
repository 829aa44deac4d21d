import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { option } from "../../../commands/command-line.js";

/** Where Debian and its like keep each version that is installed. */
const installed = "/usr/lib/postgresql";

const embedded = "embedded";

const folderOfPrograms = {
  must: `a folder with the programs of PostgreSQL, or ${embedded}`,
  read: (text: string) => (text === embedded || existsSync(join(text, "postgres")) ? text : undefined),
};

/** The PostgreSQL that a command uses: the newest that the system has, else the embedded one. */
export const postgresOption = option(
  "folder",
  `the programs of PostgreSQL: a folder, or ${embedded}`,
  folderOfPrograms,
  newestInstalled() ?? embedded,
);

/** Undefined for the embedded ones. */
export function programsOf(said: string): string | undefined {
  return said === embedded ? undefined : said;
}

function newestInstalled(): string | undefined {
  const versions = existsSync(installed) ? readdirSync(installed).toSorted((a, b) => Number(b) - Number(a)) : [];
  const folders = versions.map((version) => join(installed, version, "bin"));
  return folders.find((folder) => existsSync(join(folder, "postgres")));
}
