import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { resultsFile, summaryFile } from "../../bench/readme.js";
import { settings } from "../../src/config.js";
import { rpcs } from "../support/rpcs.js";

const dependencies = readFileSync("docs/architecture/dependencies.md", "utf8");
const overview = readFileSync("docs/architecture/overview.md", "utf8");
const configuration = readFileSync("docs/reference/configuration.md", "utf8");
const readme = readFileSync("README.md", "utf8");

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

describe("the reference of operations", () => {
  it("has each RPC with its paths and its scope", () => {
    const rows = readFileSync("docs/reference/operations.md", "utf8").matchAll(
      /^\| (\w+Service\.\w+) \| (.*) \| (.*) \|$/gm,
    );
    const documented = [...rows].map(([, name = "", paths = "", needs = ""]) => ({
      name,
      paths: [...paths.matchAll(/`(GET|POST) (\S+)`/g)].map(([, verb, path]) => `${verb} ${path}`),
      needs: needs.replaceAll("`", ""),
    }));
    const expected = rpcs.map(({ name, routes, access: { scope, operator } }) => ({
      name,
      paths: routes.map(([verb, path]) => `${verb} ${path}`),
      needs: [...(operator ? ["the operator"] : []), ...(scope ? [scope] : [])].join(", or "),
    }));
    const unary = documented.filter(({ name }) => name !== "VerifierService.Delegate");
    const byName = (one: { name: string }, other: { name: string }) => one.name.localeCompare(other.name);
    expect(unary.sort(byName)).toEqual(expected.sort(byName));
  });
});

describe("the documented variables", () => {
  /** The rows of all tables of variables in a document: the names in the first cell, and the default. */
  const variablesIn = (document: string) =>
    [...document.matchAll(/^\| ((?:`[A-Z_]+`(?:, )?)+) \| ([^|]+) \|/gm)].flatMap(([, names = "", fallback = ""]) =>
      names.split(", ").map((name) => [name.replaceAll("`", ""), fallback] as const),
    );

  it("are those that the configuration reads, with their defaults", () => {
    const documented = variablesIn(configuration).map(([name, fallback]) => [name, fallback.replaceAll("`", "")]);
    const read = Object.entries(settings).map(([name, setting]) => [name, setting.default]);
    expect(Object.fromEntries(documented)).toEqual(Object.fromEntries(read));
    expect(documented).toHaveLength(read.length);
  });

  it("have the same defaults in the README", () => {
    const reference = new Map(variablesIn(configuration));
    const first = variablesIn(section(readme, "Configuration"));
    expect(first.length).toBeGreaterThan(7);
    expect(first.filter(([name, fallback]) => !reference.get(name)?.startsWith(fallback))).toEqual([]);
  });
});

describe("the results of the benchmark", () => {
  it("are between markers in both documents, and the README lists the missed goals of the table", () => {
    const resultsIn = (file: string) => {
      const [, text] = /^<!-- bench: .* -->\n(.+)^<!-- \/bench -->$/ms.exec(readFileSync(file, "utf8")) ?? [];
      return text ?? expect.fail(`${file} has no results between markers`);
    };
    const table = resultsIn(resultsFile).split("\n");
    const missed = table
      .filter((row) => row.includes("(missed)"))
      .map((row) => row.split("|").map((cell) => cell.trim()));
    const [, list = ""] = / goals were reached\. Missed: (.*)\.\n/.exec(resultsIn(summaryFile)) ?? [];
    expect(table).toContain("| | Median | Spread | Per CPU second | Goal |");
    expect(list === "" ? [] : list.split("; ")).toEqual(
      missed.map(([, title, value = "", , , goal]) => `${title} (${value.split("**")[1]}, goal ${goal})`),
    );
  });
});
