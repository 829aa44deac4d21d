import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { describe, expect, it, onTestFinished, type TestContext } from "vitest";
import { openFileService } from "../../support/file-service.js";
import { skipTest } from "../../support/skip.js";
import { commandLine } from "./command-line.js";

const { app, key } = await openFileService();
const program = resolve("dist/src/main.js");
const name = "日本語 customer with a very long name that nobody would type twice";
const { keyId } = await commandLine(app, key).json("key", "create", "--name", name, "--scope", "keys.verify");

function needsTerminal(context: TestContext): void {
  if (!/util-linux/.test(spawnSync("script", ["--version"], { encoding: "utf8" }).stdout)) {
    skipTest(context, "this machine has no `script` of util-linux, which runs a program on a terminal");
  }
}

/** Runs `latchkey` in a terminal of this width, and types this text once a question is asked. */
async function inTerminal(args: string, { columns = 80, cwd = ".", env = {}, answer = "" }) {
  const command = `stty cols ${columns}; exec node '${program}' ${args}`;
  const child = spawn("script", ["-qec", command, "/dev/null"], { cwd, env: { PATH: process.env["PATH"], ...env } });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
    if (text.includes("[y/N]")) child.stdin.write(answer);
  });
  const exitCode = await new Promise<number>((resolve) => child.once("close", resolve));
  return { exitCode, output: output.replaceAll("\r", "") };
}

describe("tables in a terminal", () => {
  const env = { LATCHKEY_ADDRESS: app.grpcAddress, LATCHKEY_CREDENTIAL: key };

  it("fit its width: texts end with …, ids are whole, and hidden columns are named", async (context) => {
    needsTerminal(context);
    const { output } = await inTerminal("key list", { env, columns: 80 });
    const lines = output.split("\n");
    const row = lines.find((line) => line.startsWith(keyId)) ?? "";
    expect(row).toMatch(/日本語 cust.*… +enabled/);
    expect(output).toMatch(/^Not shown: .*CREATED\. A wider terminal or --json shows them\.$/m);
    // Each of the three Japanese characters takes two columns.
    const table = lines.slice(0, lines.indexOf(""));
    expect(table.length).toBeGreaterThanOrEqual(3);
    for (const line of table) expect(line.replace(/日本語/g, "xxxxxx").length).toBeLessThanOrEqual(80);
  });

  it("are complete in a wide terminal", async (context) => {
    needsTerminal(context);
    const { output } = await inTerminal("key list", { env, columns: 400 });
    expect(output).toContain(name);
    expect(output).not.toContain("Not shown");
  });

  it("are complete where there is no terminal", async () => {
    const { stdout } = await commandLine(app, key).run("key", "list");
    expect(stdout).toContain(name);
    expect(stdout).toMatch(/^ID .* CREATED$/m);
  });
});

describe("latchkey without a command, in a folder without data", () => {
  function emptyFolder(): string {
    const folder = mkdtempSync(join(tmpdir(), "latchkey-empty-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    return folder;
  }

  it.for([
    ["enter", "\n"],
    ["no", "no\n"],
    ["the end of the input", "\u0004"],
    ["Ctrl-C", "\u0003"],
  ])("asks in a terminal, and creates nothing after %s", async ([, answer], context) => {
    needsTerminal(context);
    const cwd = emptyFolder();
    const { exitCode, output } = await inTerminal("", { cwd, answer });
    expect(exitCode).toBe(1);
    expect(output).toContain(`Create a database in ${join(cwd, ".latchkey")} and run the service? [y/N]`);
    expect(output).toMatch(/Nothing was created\. `latchkey serve` runs the service/);
    expect(existsSync(join(cwd, ".latchkey"))).toBe(false);
  });

  it("asks in a terminal, and runs the service after yes", async (context) => {
    needsTerminal(context);
    // The service reads its certificate before it creates anything, and fails.
    const env = { TLS_CERT_FILE: "/nonexistent", TLS_KEY_FILE: "/nonexistent" };
    const { output } = await inTerminal("", { cwd: emptyFolder(), env, answer: "y\n" });
    expect(output).toContain("[y/N]");
    expect(output).toContain("/nonexistent");
    expect(output).not.toContain("Nothing was created");
  });

  it("latchkey serve does not ask", async (context) => {
    needsTerminal(context);
    const env = { TLS_CERT_FILE: "/nonexistent", TLS_KEY_FILE: "/nonexistent" };
    const { output } = await inTerminal("serve", { cwd: emptyFolder(), env });
    expect(output).not.toContain("[y/N]");
    expect(output).toContain("/nonexistent");
  });

  it("does not ask if DATABASE_URL is set", async (context) => {
    needsTerminal(context);
    const cwd = emptyFolder();
    const env = { DATABASE_URL: "postgres://127.0.0.1:1/none", OPERATOR_KEY: "x".repeat(24) };
    const { exitCode, output } = await inTerminal("", { cwd, env });
    expect(exitCode).toBe(1);
    expect(output).not.toContain("[y/N]");
  });
});
