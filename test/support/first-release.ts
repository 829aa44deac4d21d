import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const project = fileURLToPath(new URL("../../", import.meta.url));

/** The first release, which later versions must stay compatible with, or the reason why it cannot be tested. */
export type FirstRelease = { readonly commit: string } | { readonly missing: string };

/**
 * The commit that the CHANGELOG names for version 0.1.0. `RELEASE_COMMIT` names another one, to try the tests before there is
 * a release. A commit that is named and not in a complete history fails: a test that is skipped there would guard nothing.
 */
export function firstRelease(): FirstRelease {
  const changelog = readFileSync(new URL("../../CHANGELOG.md", import.meta.url), "utf8");
  const section = changelog.split(/^## /m).find((each) => each.startsWith("0.1.0 ")) ?? "";
  const named = process.env["RELEASE_COMMIT"] || /^Commit: `([0-9a-f]{40})`/m.exec(section)?.[1];
  if (named === undefined) {
    return { missing: "CHANGELOG.md names no commit of version 0.1.0 yet (a line such as: Commit: `<40 hex digits>`)" };
  }
  const parsed = git("rev-parse", "--verify", `${named}^{commit}`);
  if (parsed.status !== 0) {
    const isComplete = git("rev-parse", "--is-shallow-repository").stdout.toString().trim() === "false";
    if (isComplete) throw new Error(`the history has no commit ${named}`);
    return { missing: `the checkout has no commit ${named}: clone with the whole history, or git fetch --unshallow` };
  }
  return { commit: parsed.stdout.toString().trim() };
}

/** Runs git in the checkout. */
export function git(...args: string[]) {
  return spawnSync("git", args, { cwd: project, maxBuffer: 1024 ** 3 });
}
