import { relative } from "node:path";
import type { Plugin } from "vite";
import { mutants } from "./mutants.js";
import { verifierMutants } from "./verifier-mutants.js";

/** The mutated modules and all modules that import them: an importer of a mutated module must be loaded again, too. */
const mutable =
  /\/(src\/auth|src\/call|src\/delegation|src\/keys|src\/revocation|src\/rpc|src\/verifier|test\/verification\/schedules)\/[^/]+\.ts$/;

/** A mutant is named by its place in this list. */
const allMutants = [...mutants, ...verifierMutants];

/**
 * Serves mutated versions of modules to tests, so that the sources need no switches for it. `./a.js?mutant=3` is a
 * separate instance of a.ts, and everything that it imports is of the mutant with that number.
 */
export function mutantsPlugin(root: string): Plugin {
  return {
    name: "mutants",
    enforce: "pre",

    async resolveId(source, importer) {
      const mutant = mutantIn(source) ?? mutantIn(importer ?? "");
      if (mutant === undefined || !source.startsWith(".")) return null;
      const resolved = await this.resolve(withoutQuery(source), importer && withoutQuery(importer), { skipSelf: true });
      return resolved && mutable.test(resolved.id) ? `${resolved.id}?mutant=${mutant}` : resolved;
    },

    transform(code, id) {
      const mutant = allMutants[Number(mutantIn(id))];
      if (mutant === undefined || mutant.file !== relative(root, withoutQuery(id))) return null;
      const parts = code.split(mutant.text);
      if (parts.length !== 2)
        throw new Error(
          `${mutant.file} must contain this once, and contains it ${parts.length - 1} times: ${mutant.text}`,
        );
      return parts.join(mutant.replacement);
    },
  };
}

function mutantIn(id: string): string | undefined {
  return /\?mutant=(\d+)$/.exec(id)?.[1];
}

function withoutQuery(id: string): string {
  return id.replace(/\?.*$/, "");
}
