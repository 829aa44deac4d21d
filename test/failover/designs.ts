import { join } from "node:path";
import { built, installModule } from "../faults/designs.js";

/** A way to run the service, or its database, by which acknowledged changes are lost in a failover. */
export interface Design {
  /** Whether commits wait for the standby. */
  readonly synchronous: boolean;
  /** The module below src that is replaced by the file of the design's name. */
  readonly replaces?: string;
}

export const sound: Design = { synchronous: true };

export const brokenDesigns: Readonly<Record<string, Design>> = {
  async: { synchronous: false },
  "unheard-warnings": { synchronous: true, replaces: "storage/postgres" },
  "unwritten-repeats": { synchronous: true, replaces: "auth/make-durable" },
  "confirmed-elsewhere": { synchronous: true, replaces: "auth/make-durable" },
};

/** The folder of the service as this design has it: as it was built, or a copy below `folder`. */
export function install(name: string | undefined, { replaces }: Design, folder: string): string {
  if (name === undefined || replaces === undefined) return built;
  return installModule(`test/failover/designs/${name}.mjs`, replaces, join(folder, name));
}
