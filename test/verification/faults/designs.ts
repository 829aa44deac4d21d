import { cpSync, mkdirSync, renameSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { project } from "../../../commands/project.js";
import type { ClusterOptions } from "./cluster.js";

/** A variant of the service, of its library or of its database, that breaks the revocation promise. */
export interface Design {
  /** The module below src that the file of the design replaces. The file may import the replaced module. */
  readonly replaces?: string;
  readonly cluster?: Pick<ClusterOptions, "synchronous" | "settings">;
}

/**
 * Designs that were rejected, or that the service used before. Earlier designs that were only slower, or let tenants
 * slow each other down, are not listed, because fault injection cannot detect them. They are tested in
 * test/integration/storage/shares, test/integration/storage/pool-exhausted, test/integration/revocation/changes and
 * test/integration/storage/unseen-changes.
 */
const designs: Readonly<Record<string, Design>> = {
  "cache-aside": { replaces: "revocation/key-cache" },
  "publish-subscribe": { replaces: "revocation/key-cache" },
  "no-wait": { replaces: "revocation/key-cache" },
  "no-recheck": { replaces: "auth/authenticate" },
  "no-condition": { replaces: "revocation/authorized-key" },
  "own-time-of-day": { replaces: "keys/verify" },
  "no-margin": { replaces: "revocation/lease" },
  "rare-renewals": { replaces: "revocation/lease" },
  "highest-transaction": { replaces: "revocation/change-store" },
  // The long delay keeps the WAL writer from writing the commits soon anyway.
  "unsafe-setting": {
    replaces: "revocation/change-store",
    cluster: { settings: { synchronous_commit: "off", wal_writer_delay: "10s" } },
  },
  async: { cluster: { synchronous: false } },
  "unheard-warnings": { replaces: "storage/postgres/connection" },
  "unwritten-repeats": { replaces: "revocation/durability-barrier" },
  "confirmed-elsewhere": { replaces: "revocation/durability-barrier" },
  "grant-from-arrival": { replaces: "verifier/grant" },
  "invalidation-after-grant": { replaces: "delegation/delegation" },
  "states-kept": { replaces: "verifier/key-states" },
  "caller-unchecked": { replaces: "delegation/stream" },
  "unnoticed-suspension": { replaces: "verifier/grant" },
};

export const brokenDesigns = Object.keys(designs);

/** The designs with which a failover loses acknowledged changes. */
export const losingDesigns = ["async", "unheard-warnings", "unwritten-repeats", "confirmed-elsewhere"];

/** @param name undefined for the built service */
export function clusterOf(name: string | undefined): Design["cluster"] {
  return name === undefined ? undefined : designs[name]?.cluster;
}

/** The folder of the built service. */
export const built = join(project, "dist");

/** Returns the folder of the service with this design: the built one, or a copy below `folder`. */
export function installDesign(name: string | undefined, folder: string): string {
  const replaces = name === undefined ? undefined : designs[name]?.replaces;
  if (name === undefined || replaces === undefined) return built;
  return installModule(join("test/verification/faults/designs", `${name}.mjs`), replaces, join(folder, name));
}

/** Copies the built service into a new folder, and replaces a module below src by a file. */
function installModule(file: string, replacedModule: string, copy: string): string {
  const dist = join(copy, "dist");
  mkdirSync(dist, { recursive: true });
  for (const part of ["src", "gen"]) cpSync(join(built, part), join(dist, part), { recursive: true });
  cpSync(join(project, "package.json"), join(copy, "package.json"));
  symlinkSync(join(project, "node_modules"), join(copy, "node_modules"), "dir");
  // The rename fails if the module does not exist. Otherwise a renamed module would silently not be replaced.
  const module = join(dist, "src", replacedModule);
  renameSync(`${module}.js`, `${module}.as-built.js`);
  cpSync(join(project, file), `${module}.js`);
  return dist;
}
