import { execFile } from "node:child_process";
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeEach, describe, expect, it } from "vitest";

const run = promisify(execFile);
const folder = mkdtempSync(join(tmpdir(), "latchkey-build-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A small project with this project's build. */
const sources = {
  "src/main.ts": 'import { greeting } from "./words/greeting.js";\nexport const text: string = greeting;\n',
  "src/words/greeting.ts": 'export const greeting = "hello";\n',
  "src/words/unused.ts": "export const unused = 1;\n",
  "src/storage/migrations/0001_schema.sql": "select 1;\n",
  "src/storage/migrations/0002_more.sql": "select 2;\n",
  "gen/openapi.json": "{}\n",
};

let project: string;
beforeEach(async () => {
  project = createProject(mkdtempSync(join(folder, "project-")));
  await build(project);
});

function createProject(target: string): string {
  for (const name of ["package.json", "tsconfig.json", "tsconfig.build.json", "scripts/build.mjs"]) {
    cpSync(name, join(target, name));
  }
  symlinkSync(resolve("node_modules"), join(target, "node_modules"));
  for (const [file, text] of Object.entries(sources)) write(join(target, file), text);
  return target;
}

function write(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

/** What `npm start` runs before it starts the service. */
async function build(cwd: string): Promise<string> {
  const { stdout, stderr } = await run("node", ["scripts/build.mjs"], { cwd });
  return stdout + stderr;
}

function filesOf(tree: string): string[] {
  const entries = readdirSync(tree, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

function contentsOf(project: string): Record<string, string> {
  const built = ["dist/src", "dist/gen"].flatMap((part) => filesOf(join(project, part)));
  return Object.fromEntries(built.sort().map((file) => [file.slice(project.length), readFileSync(file, "utf8")]));
}

/** What `npm run build` makes of the same sources. */
async function cleanBuild(): Promise<Record<string, string>> {
  const copy = mkdtempSync(join(folder, "clean-"));
  cpSync(project, copy, { recursive: true, filter: (path) => path !== join(project, "dist"), verbatimSymlinks: true });
  await run("npm", ["run", "build"], { cwd: copy });
  return contentsOf(copy);
}

describe("npm start builds what npm run build would build", () => {
  const changes: Readonly<Record<string, () => void>> = {
    "after a change of a source, also to an older date, as an archive or a checkout may have": () => {
      write(join(project, "src/words/greeting.ts"), 'export const greeting = "good morning";\n');
      utimesSync(join(project, "src/words/greeting.ts"), 1, 1);
    },
    "after a change of a type that another file uses": () =>
      write(join(project, "src/words/greeting.ts"), 'export const greeting: string = "hello";\n'),
    "after the deletion of a source": () => rmSync(join(project, "src/words/unused.ts")),
    "after the change of a migration, and the deletion of another": () => {
      write(join(project, "src/storage/migrations/0001_schema.sql"), "select 3;\n");
      rmSync(join(project, "src/storage/migrations/0002_more.sql"));
    },
    "after a new file": () => write(join(project, "src/pages/style.css"), "p {}\n"),
    "after the deletion of a built file": () => rmSync(join(project, "dist/src/words/greeting.js")),
    "after an interrupted build": () => {
      write(join(project, "dist/.unfinished"), "");
      write(join(project, "dist/src/words/greeting.js"), "half of");
    },
    "after a change of the compiler's options": () => {
      const file = join(project, "tsconfig.json");
      writeFileSync(file, readFileSync(file, "utf8").replace('"ES2023",', '"ES2022",'));
    },
  };

  it.for(Object.entries(changes))("%s", async ([, change]) => {
    change();
    await build(project);
    expect(contentsOf(project)).toEqual(await cleanBuild());
  });
});

describe("npm start", () => {
  it("writes no built file if nothing has changed, because another service may run from them", async () => {
    for (const file of filesOf(join(project, "dist"))) utimesSync(file, 1, 1);
    await build(project);
    expect(filesOf(join(project, "dist")).filter((file) => statSync(file).mtimeMs !== 1000)).toEqual([]);
  });

  it("writes only what a change affects", async () => {
    for (const file of filesOf(join(project, "dist"))) utimesSync(file, 1, 1);
    write(join(project, "src/words/unused.ts"), "export const unused = 2;\n");
    await build(project);
    const written = filesOf(join(project, "dist/src")).filter((file) => statSync(file).mtimeMs !== 1000);
    expect(new Set(written.map((file) => file.replace(/(\.d\.ts|\.js|\.js\.map)$/, "")))).toEqual(
      new Set([join(project, "dist/src/words/unused")]),
    );
  });

  it("fails if a source does not compile, again and again, until it is fixed", async () => {
    write(join(project, "src/words/unused.ts"), 'export const unused: number = "";\n');
    await expect(build(project)).rejects.toMatchObject({ stdout: expect.stringContaining("unused.ts") });
    await expect(build(project)).rejects.toMatchObject({ stdout: expect.stringContaining("unused.ts") });
    write(join(project, "src/words/unused.ts"), "export const unused: number = 3;\n");
    await build(project);
    expect(contentsOf(project)).toEqual(await cleanBuild());
  });

  it("leaves the built entry point executable", () => {
    expect(statSync(join(project, "dist/src/main.js")).mode & 0o111).toBe(0o111);
  });

  it("without the development dependencies, uses a complete build, and refuses an incomplete one", async () => {
    rmSync(join(project, "node_modules"));
    const before = contentsOf(project);
    expect(await build(project)).toContain("using dist as it was built");
    expect(contentsOf(project)).toEqual(before);
    write(join(project, "dist/.unfinished"), "");
    await expect(build(project)).rejects.toMatchObject({ stderr: expect.stringContaining("npm run build") });
  });
});
