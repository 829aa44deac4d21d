// Builds dist/src, dist/gen and dist/third_party. Compiles only what has changed since the last build; `npm run build` deletes dist first,
// and so builds everything.
import { execFileSync } from "node:child_process";
import { chmodSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const roots = ["src", "gen"];
/** The files of Swagger UI that the service serves. As a dependency, its package would also bring what nobody needs. */
const swaggerUi = ["swagger-ui.css", "swagger-ui-bundle.js", "swagger-ui-bundle.js.LICENSE.txt", "LICENSE", "NOTICE"];
const compiler = "node_modules/.bin/tsc";
/** What TypeScript knows of its last build: the contents of the sources, so that their dates do not matter. */
const buildInfo = "dist/.tsbuildinfo";
/** Exists while a build runs, and after one that failed. */
const unfinished = "dist/.unfinished";

if (existsSync(compiler)) {
  build();
} else if (existsSync("dist/src/main.js") && !existsSync(unfinished)) {
  process.stderr.write("The development dependencies are not installed: using dist as it was built.\n");
} else {
  process.stderr.write("There is no complete build in dist. Run `npm ci && npm run build`.\n");
  process.exitCode = 1;
}

function build() {
  const sources = roots.flatMap(filesBelow);
  const outputs = new Set(sources.flatMap(outputsOf));

  // TypeScript compares the sources with its last build, but does not look at dist.
  if (existsSync(unfinished) || [...outputs].some((file) => !existsSync(file))) rmSync(buildInfo, { force: true });

  mkdirSync("dist", { recursive: true });
  writeFileSync(unfinished, "");
  try {
    execFileSync(compiler, ["-p", "tsconfig.build.json"], { stdio: "inherit" });
  } catch {
    // The compiler has printed its errors.
    process.exitCode = 1;
    return;
  }
  for (const file of sources.filter((source) => !isTypeScript(source))) copyIfChanged(file, `dist/${file}`);
  for (const file of swaggerUi) {
    // The second one is for tests, which run the sources.
    for (const folder of ["dist/third_party", "third_party"]) {
      copyIfChanged(`node_modules/swagger-ui-dist/${file}`, `${folder}/swagger-ui/${file}`);
    }
  }
  for (const file of roots.flatMap((root) => filesBelow(`dist/${root}`))) if (!outputs.has(file)) rmSync(file);
  chmodSync("dist/src/main.js", 0o755);
  rmSync(unfinished, { force: true }); // a build that ran at the same time may have removed it
}

function filesBelow(folder) {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

function outputsOf(source) {
  if (!isTypeScript(source)) return [`dist/${source}`];
  return [".js", ".js.map", ".d.ts"].map((extension) => `dist/${source.replace(/\.ts$/, extension)}`);
}

function isTypeScript(file) {
  return file.endsWith(".ts");
}

/** A running service may read the file at this moment. */
function copyIfChanged(from, to) {
  if (!existsSync(to) || !readFileSync(from).equals(readFileSync(to))) cpSync(from, to);
}
