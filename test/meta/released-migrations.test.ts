import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { firstRelease, git } from "../support/first-release.js";
import { skipTest } from "../support/skip.js";

const folder = "src/storage/postgres/migrations/";

test("every migration of the first release is unchanged: databases that have it are not migrated again", (context) => {
  const release = firstRelease();
  if ("missing" in release) return skipTest(context, release.missing);
  const { commit } = release;
  const names = git("ls-tree", "--name-only", commit, folder).stdout.toString().trim().split("\n");
  expect(names.length).toBeGreaterThan(0);
  for (const name of names) {
    const present = readFileSync(new URL(`../../${name}`, import.meta.url), "utf8");
    // Not `toBe`: the difference of two schemas says nothing that its name does not.
    const isUnchanged = git("show", `${commit}:${name}`).stdout.toString() === present;
    expect(isUnchanged, `${name} was released and has changed: restore it, and add another migration`).toBe(true);
  }
});
