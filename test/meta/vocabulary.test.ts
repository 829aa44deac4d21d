import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

/**
 * Words that the glossary (docs/architecture/glossary.md) replaced, and the words to use instead. Only words that are
 * unmistakable: the glossary lists more, which have other meanings too often to be searched for.
 */
const replaced: { word: RegExp; use: string; example: string }[] = [
  { word: /\bdoors?\b/, use: "protocol (of a call), port (of a server)", example: "through every door" },
  { word: /\bholdings?\b/, use: "key cache", example: "the holdings of a process" },
  { word: /\bshelf\b/, use: "tiered cache", example: "on the shelf" },
  { word: /under.?way/, use: "in flight", example: "mostUnderWay" },
  { word: /\bwhoever\b/, use: "the client, the caller", example: "whoever asks" },
  { word: /\bjudg(e|es|ed|ing|ement|ment)\b/, use: "verify, validate, authorize", example: "is judged" },
  { word: /\bverdicts?\b/, use: "result", example: "the verdict" },
  { word: /\blanes?\b/, use: "connection", example: "a lane of the pool" },
  { word: /waiting.?room/, use: "acquire queue", example: "WaitingRoom" },
  { word: /\bpatience\b|\bpatiently\b/, use: "timeout, deadline, CoDel", example: "out of patience" },
  { word: /kept.?answers?/, use: "idempotency record", example: "keptAnswers" },
  // PostgreSQL's isolation level is called "repeatable read".
  { word: /\brepeatable\b(?!.read\b)/, use: "idempotent", example: "a repeatable change" },
  { word: /turned.?away/, use: "shed, refused", example: "turnedAway" },
  // Without "is" it may be a time that "has passed by the database's clock".
  { word: /\b(is|are|was|were|be) passed by\b|passedBy\b/, use: "bypassed", example: "Redis is passed by" },
  { word: /\bmend(s|ed|ing)?\b/, use: "fix", example: "mends itself" },
  { word: /\btold\b/, use: "logged, returned, reported, described", example: "is told once" },
  // Troubleshooting is what a reader of operations documents searches for.
  { word: /trouble(?!shoot)/, use: "error, outage", example: "tellTrouble" },
  { word: /STOP_DELAY_MS/, use: "SHUTDOWN_DELAY_MS", example: "STOP_DELAY_MS=0" },
  { word: /\blookEveryMs\b/, use: "pollIntervalMs, sweepIntervalMs", example: "lookEveryMs = 10" },
].map((row) => ({ ...row, word: new RegExp(row.word, "i") }));

const searched = ["src", "test", "bench", "commands", "scripts", "examples", "proto", "docs"];
const documents = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];
/** The two files that must contain the words. */
const exempt = new Set(["docs/architecture/glossary.md", "test/meta/vocabulary.test.ts"]);

function trackedFiles(paths: string[]): string[] {
  const listed = execFileSync("git", ["ls-files", "-z", "--", ...paths], { encoding: "utf8" });
  return listed.split("\0").filter((path) => path !== "" && !exempt.has(path) && !path.endsWith("package-lock.json"));
}

/** One line for each replaced word in a text. A file with NUL bytes is binary, and has no words. */
function replacedWordsIn(path: string, text: string): string[] {
  if (text.includes("\0")) return [];
  return text.split("\n").flatMap((line, index) =>
    replaced.flatMap(({ word, use }) => {
      const found = word.exec(line);
      return found === null ? [] : [`${path}:${index + 1}: ${found[0]} (use: ${use})`];
    }),
  );
}

describe("the vocabulary of the glossary", () => {
  it("is used in all code and documents: no replaced word returns", () => {
    const files = trackedFiles([...searched, ...documents]);
    expect(files).toEqual(expect.arrayContaining(["src/app.ts", ...documents]));
    expect(files.flatMap((path) => replacedWordsIn(path, readFileSync(path, "utf8")))).toEqual([]);
  });

  it.each(replaced)("finds $example in a text", ({ word, use, example }) => {
    const found = word.exec(example)?.[0];
    expect(replacedWordsIn("planted.ts", `a line\n${example}\n`)).toEqual([`planted.ts:2: ${found} (use: ${use})`]);
  });

  it.each(["isolation level repeatable read", "docs/operations/troubleshooting.md", "has passed by this clock"])(
    "accepts %s",
    (text) => {
      expect(replacedWordsIn("planted.ts", text)).toEqual([]);
    },
  );
});
