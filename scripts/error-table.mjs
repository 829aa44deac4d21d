// Writes the README's table of errors from the catalogue, which alone knows it. Needs a build.
import { readFileSync, writeFileSync } from "node:fs";
import { catalogue, errorCodes, grpcNameOf, pathOf } from "../dist/src/errors.js";

const begin = "<!-- errors: written by `npm run generate` from src/errors.ts -->\n";
const end = "<!-- /errors -->";

const rows = errorCodes.map((code) => {
  const { status, when } = catalogue[code];
  return `| \`${pathOf(code)}\` | ${status} | ${grpcNameOf(code) ?? "–"} | ${when} |`;
});
const table = ["| Error | HTTP | gRPC | When |", "|---|---|---|---|", ...rows, ""].join("\n");

const readme = readFileSync("README.md", "utf8");
const [before, rest] = readme.split(begin);
const [, after] = rest.split(end);
const written = before + begin + table + end + after;

if (process.argv.includes("--check")) {
  if (written !== readme) {
    process.stderr.write("README.md: the table of errors is not what src/errors.ts says; run `npm run generate`\n");
    process.exitCode = 1;
  }
} else {
  writeFileSync("README.md", written);
}
