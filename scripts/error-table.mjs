// Generates the error table of the documentation from the catalogue. Needs a build.
import { readFileSync, writeFileSync } from "node:fs";
import { catalogue, errorCodes, grpcNameOf, pathOf } from "../dist/src/errors.js";
import { errorDocs } from "../dist/src/http/pages/error-docs.js";

const file = "docs/reference/errors.md";
const begin = "<!-- errors: written by `npm run generate` from src/errors.ts and src/http/pages/error-docs.ts -->\n";
const end = "<!-- /errors -->";

const rows = errorCodes.map((code) => {
  const { status } = catalogue[code];
  return `| \`${pathOf(code)}\` | ${status} | ${grpcNameOf(code) ?? "–"} | ${errorDocs[code].when} |`;
});
const table = ["| Error | HTTP | gRPC | When |", "|---|---|---|---|", ...rows, ""].join("\n");

const document = readFileSync(file, "utf8");
const [before, rest] = document.split(begin);
const [, after] = rest.split(end);
const updated = before + begin + table + end + after;

if (process.argv.includes("--check")) {
  if (updated !== document) {
    process.stderr.write(`${file}: the table of errors differs from the catalogue; run \`npm run generate\`\n`);
    process.exitCode = 1;
  }
} else {
  writeFileSync(file, updated);
}
