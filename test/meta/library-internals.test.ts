import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import packageJson from "../../package.json" with { type: "json" };

const root = fileURLToPath(new URL("../..", import.meta.url));
const files = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts"))
  .map((file) => `src/${file}`);
const internals = files.filter((file) => basename(file) === "internals.ts");
const text = (file: string) => readFileSync(join(root, file), "utf8");

/** A cast that reaches any member, and members whose name marks them as private. */
const privateAccess = [
  /^.*\bas unknown as\b.*$/gm,
  /^.*(?:\.|\["|\boverride )_[a-zA-Z].*$/gm,
  /^.*(?:[{;]|\breadonly)\s*_[a-zA-Z]\w*\??\s*[:,}].*$/gm,
];

/** Casts between public types. They reach nothing private. */
const publicCasts = [
  "const members = message as unknown as Record<string, unknown>;", // the fields of a generated message
  "resolve(rows as unknown as RowList<T>);",
];

function privateAccessOf(file: string): string[] {
  return privateAccess
    .flatMap((pattern) => text(file).match(pattern) ?? [])
    .map((line) => line.trim())
    .filter((line) => !/^(\/\/|\*|\/\*)/.test(line) && !publicCasts.includes(line));
}

describe("library internals are confined to internals.ts", () => {
  it("the check finds the uses in the files that are allowed to have them", () => {
    expect(internals.length).toBeGreaterThanOrEqual(3);
    expect(privateAccessOf("src/grpc/internals.ts")).not.toEqual([]);
    expect(privateAccessOf("src/http/internals.ts")).not.toEqual([]);
  });

  it("no other file uses a private member of a library", () => {
    const others = files.filter((file) => !internals.includes(file));
    expect(others.flatMap((file) => privateAccessOf(file).map((line) => `${file}: ${line}`))).toEqual([]);
  });

  it("the list in the documentation names every internals.ts", () => {
    const page = text("docs/architecture/library-internals.md");
    expect(internals.filter((file) => !page.includes(`(../../${file})`))).toEqual([]);
  });

  it.each(internals)("%s names the library, with the installed version if it is a package", (file) => {
    const [, version] = /^\/\/ .+?(\d[\d.]*\d)\b/.exec(text(file)) ?? [];
    expect(version).toBeDefined();
    const { dependencies, optionalDependencies } = packageJson;
    const installed = Object.values({ ...dependencies, ...optionalDependencies });
    if (version?.includes(".")) expect(installed).toContain(version);
  });

  // V8 ignores a flag that it does not know, and has no way to read one. test/unit/process/internals.test.ts checks it.
  const assertable = internals.filter((file) => file !== "src/process/internals.ts");
  it.each(assertable)("%s asserts what it needs, and says in the error which file to adapt", (file) => {
    expect(text(file)).toMatch(/\bthrow\b/);
    expect(text(file)).toContain(file);
  });
});
