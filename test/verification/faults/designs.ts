import { cpSync, mkdirSync, renameSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { project } from "../../../commands/project.js";
import type { ClusterOptions } from "./cluster.js";

/** A way to run the service, or its database, that breaks the promise. */
export interface Design {
  /** The module below src whose place is taken by the file of the design's name, which may build upon it. */
  readonly replaces?: string;
  readonly cluster?: Pick<ClusterOptions, "synchronous" | "settings">;
}

/**
 * Each does what the service does not do, or did before. Where the design before was only slower, or let tenants slow each
 * other down, there is nothing to find here: see test/integration/storage/shares, test/integration/storage/pool-exhausted, test/integration/revocation/changes and
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
  // So that what was not written is not soon written anyway.
  "unsafe-setting": {
    replaces: "revocation/change-store",
    cluster: { settings: { synchronous_commit: "off", wal_writer_delay: "10s" } },
  },
  async: { cluster: { synchronous: false } },
  "unheard-warnings": { replaces: "storage/postgres/connection" },
  "unwritten-repeats": { replaces: "revocation/make-durable" },
  "confirmed-elsewhere": { replaces: "revocation/make-durable" },
};

export const brokenDesigns = Object.keys(designs);

/** Those by which a failover loses what was acknowledged. */
export const losingDesigns = ["async", "unheard-warnings", "unwritten-repeats", "confirmed-elsewhere"];

/** Undefined stands for the sound design. */
export function clusterOf(name: string | undefined): Design["cluster"] {
  return name === undefined ? undefined : designs[name]?.cluster;
}

/** The folder of the service as it was built. */
export const built = join(project, "dist");

/** The folder of the service as this design has it: as it was built, or a copy below `folder`. */
export function installDesign(name: string | undefined, folder: string): string {
  const replaces = name === undefined ? undefined : designs[name]?.replaces;
  if (name === undefined || replaces === undefined) return built;
  return installModule(join("test/verification/faults/designs", `${name}.mjs`), replaces, join(folder, name));
}

/** A copy of the built service in a new folder, in which a file takes the place of a module below src. */
function installModule(file: string, replacedModule: string, home: string): string {
  const dist = join(home, "dist");
  mkdirSync(dist, { recursive: true });
  for (const part of ["src", "gen"]) cpSync(join(built, part), join(dist, part), { recursive: true });
  cpSync(join(project, "package.json"), join(home, "package.json"));
  symlinkSync(join(project, "node_modules"), join(home, "node_modules"), "dir");
  // The module must be there, or nothing would be replaced; a design may build upon it.
  const module = join(dist, "src", replacedModule);
  renameSync(`${module}.js`, `${module}.as-built.js`);
  cpSync(join(project, file), `${module}.js`);
  return dist;
}
