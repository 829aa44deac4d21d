import { execFile, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { skipTest } from "../../support/skip.js";
import { latchkey } from "./command-line.js";

const run = promisify(execFile);
const hasZsh = spawnSync("zsh", ["--version"]).status === 0;

let folder: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "latchkey-completion-"));
  for (const shell of ["bash", "zsh"]) {
    writeFileSync(join(folder, `completion.${shell}`), (await latchkey(["completion", shell])).stdout);
  }
  mkdirSync(join(folder, "files"));
  writeFileSync(join(folder, "files", "my key.txt"), "");
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** What bash offers for the last word of a command line. */
async function bashOffers(...words: string[]): Promise<string[]> {
  const script = `source completion.bash
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
complete -p latchkey > /dev/null && _latchkey && printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout } = await run("bash", ["-euo", "pipefail", "-c", script, "bash", ...words], { cwd: folder });
  return stdout.split("\n").filter(Boolean);
}

describe("completion in bash", () => {
  it("offers the commands, and below them their commands", async () => {
    expect(await bashOffers("latchkey", "")).toEqual(
      expect.arrayContaining(["serve", "key", "completion", "--version"]),
    );
    expect(await bashOffers("latchkey", "key", "cr")).toEqual(["create", "credits"]);
  });

  it("offers the flags of a command, also after the values of other flags", async () => {
    expect(await bashOffers("latchkey", "key", "create", "--ex")).toEqual(["--external-id", "--expires"]);
    expect(await bashOffers("latchkey", "key", "create", "--name", "list", "--ex")).toEqual([
      "--external-id",
      "--expires",
    ]);
  });

  it("offers the values of a flag and of an argument", async () => {
    expect(await bashOffers("latchkey", "workspace", "disable", "ws_1", "--reason", "un")).toEqual(["unpaid-billing"]);
    expect(await bashOffers("latchkey", "completion", "z")).toEqual(["zsh"]);
    expect(await bashOffers("latchkey", "key", "create", "--name", "")).toEqual([]);
  });

  it("offers files where a file is expected", async () => {
    expect(await bashOffers("latchkey", "key", "list", "--credential-file", "files/")).toEqual(["files/my key.txt"]);
    expect(await bashOffers("latchkey", "key", "import", "files/m")).toEqual(["files/my key.txt"]);
    expect(await bashOffers("latchkey", "key", "import", "--migr")).toEqual(["--migration-id"]);
  });
});

it("completion in zsh completes a command, a flag and its value", async (context) => {
  if (!hasZsh) return skipTest(context, "zsh is not installed on this machine");
  // A terminal of its own: zsh completes only what is typed.
  const script = `zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; source completion.zsh; print read''y"
zpty -r -m shell output '*ready*'
zpty -w -n shell $'latchkey workspace dis\\tws_1 --rea\\tun\\t\\C-a#\\n'
zpty -r -m shell output '*unpaid-billing*' && print complete`;
  const { stdout } = await run("zsh", ["-f", "-c", script], { cwd: folder, timeout: 20_000 });
  expect(stdout).toContain("complete");
});
