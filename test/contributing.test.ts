import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const dependencies = readFileSync("docs/architecture/dependencies.md", "utf8");
const overview = readFileSync("docs/architecture/overview.md", "utf8");

/** The text under a heading of a document. */
function section(document: string, heading: string): string {
  return document.split(/^## /m).find((text) => text.startsWith(`${heading}\n`)) ?? "";
}

describe("the architecture documents", () => {
  it("give a reason for each dependency, and for no other package", () => {
    const manifest = JSON.parse(readFileSync("package.json", "utf8"));
    const rows = section(dependencies, "Packages").matchAll(/^\| (`[^|]+`) \| \S[^|]*\|$/gm);
    const named = [...rows].flatMap(([, packages = ""]) => packages.replaceAll("`", "").split(", "));
    const installed = Object.keys({
      ...manifest.dependencies,
      ...manifest.optionalDependencies,
      ...manifest.devDependencies,
    });
    expect(named.sort()).toEqual(installed.sort());
  });

  it("name every folder of src", () => {
    const [, tree = ""] = /^src\/\n((?: .*\n)+)/m.exec(section(overview, "Tree")) ?? [];
    const named = [...tree.matchAll(/^ {2}(\S+)\/ /gm)].map(([, folder]) => folder);
    const entries = readdirSync("src", { withFileTypes: true });
    const folders = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
    expect(named.sort()).toEqual(folders.sort());
  });
});
