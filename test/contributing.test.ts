import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const contributing = readFileSync("CONTRIBUTING.md", "utf8");

/** What stands under a heading. */
function section(heading: string): string {
  return contributing.split(/^## /m).find((text) => text.startsWith(`${heading}\n`)) ?? "";
}

describe("the tour of the house", () => {
  it("gives a reason for each dependency, and for no other package", () => {
    const { dependencies, optionalDependencies, devDependencies } = JSON.parse(readFileSync("package.json", "utf8"));
    const rows = section("Dependencies").matchAll(/^\| (`[^|]+`) \| \S[^|]*\|$/gm);
    const named = [...rows].flatMap(([, packages = ""]) => packages.replaceAll("`", "").split(", "));
    const installed = Object.keys({ ...dependencies, ...optionalDependencies, ...devDependencies });
    expect(named.sort()).toEqual(installed.sort());
  });

  it("passes through every folder of src", () => {
    const [, tree = ""] = /^src\/\n((?: .*\n)+)/m.exec(section("The tree")) ?? [];
    const told = [...tree.matchAll(/^ {2}(\S+)\/ /gm)].map(([, folder]) => folder);
    const entries = readdirSync("src", { withFileTypes: true });
    const folders = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
    expect(told.sort()).toEqual(folders.sort());
  });
});
