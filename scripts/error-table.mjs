// Generates the error table of the documentation from the catalogue. Needs a build.
import { readFileSync, writeFileSync } from "node:fs";
import { catalogue, errorCodes, grpcNameOf, pathOf } from "../dist/src/errors.js";

const file = "docs/reference/errors.md";
const begin = "<!-- errors: written by `npm run generate` from src/errors.ts -->\n";
const end = "<!-- /errors -->";

const rows = errorCodes.map((code) => {
  const { status, when } = catalogue[code];
  return `| \`${pathOf(code)}\` | ${status} | ${grpcNameOf(code) ?? "–"} | ${when} |`;
});
const table = ["| Error | HTTP | gRPC | When |", "|---|---|---|---|", ...rows, ""].join("\n");

const document = readFileSync(file, "utf8");
const [before, rest] = document.split(begin);
const [, after] = rest.split(end);
const updated = before + begin + table + end + after;

if (process.argv.includes("--check")) {
  if (updated !== document) {
    process.stderr.write(`${file}: the table of errors differs from src/errors.ts; run \`npm run generate\`\n`);
    process.exitCode = 1;
  }
} else {
  writeFileSync(file, updated);
}
