// Finds broken relative links and anchors in the Markdown of this repository. Written by hand, because the checkers on
// npm access the network, need a newer Node, or have 190 dependencies. Libraries parse the Markdown and build GitHub's
// anchors.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import GithubSlugger from "github-slugger";
import { lexer, walkTokens } from "marked";

/** Ignored files are no valid targets, even if they exist here. The .gitignore has only plain names. */
const ignored = new Set([".git", ...readFileSync(".gitignore", "utf8").split(/\/?\n/)]);
const files = filesBelow(".");
const targets = new Set(files.flatMap((file) => [file, ...foldersOf(file)]));

const documents = files.filter((file) => file.endsWith(".md"));
const broken = documents.flatMap((file) => linksIn(file).flatMap((link) => problemOf(file, link) ?? []));
if (documents.length === 0) broken.push("there is no Markdown to check");
for (const problem of broken) process.stderr.write(`${problem}\n`);
process.exitCode = broken.length === 0 ? 0 : 1;

function filesBelow(folder) {
  return readdirSync(folder, { withFileTypes: true })
    .filter(({ name }) => !ignored.has(name))
    .flatMap((entry) => {
      const path = join(folder, entry.name);
      return entry.isDirectory() ? filesBelow(path) : path;
    });
}

/** The folders above a path, "." among them. */
function foldersOf(file) {
  const folder = dirname(file);
  return folder === "." ? [folder] : [folder, ...foldersOf(folder)];
}

function linksIn(file) {
  return tokensOf(file)
    .filter(({ type }) => type === "link" || type === "image")
    .map(({ href }) => href);
}

function problemOf(file, link) {
  if (/^[a-z]+:/i.test(link)) return undefined;
  const [path, anchor] = decodeURI(link).split("#");
  const target = path === "" ? file : relative(".", join(dirname(file), path)) || ".";
  if (!targets.has(target)) return `${file}: ${link} is not a file of the repository`;
  if (anchor === undefined || !target.endsWith(".md")) return undefined;
  return anchorsIn(target).includes(anchor) ? undefined : `${file}: ${link} is not a heading of ${target}`;
}

function anchorsIn(file) {
  const slugger = new GithubSlugger();
  return tokensOf(file)
    .filter(({ type }) => type === "heading")
    .map((heading) => slugger.slug(plainText(heading)));
}

/** The text of a heading without the markup of code and links. */
function plainText({ tokens, text }) {
  return tokens ? tokens.map(plainText).join("") : text;
}

function tokensOf(file) {
  const tokens = [];
  walkTokens(lexer(readFileSync(file, "utf8")), (token) => tokens.push(token));
  return tokens;
}
