import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { openFileApp } from "../../support/file-service.js";
import { skipTest } from "../../support/skip.js";
import { makeSandbox, project, unusedPort } from "../service.js";
import { commandLine } from "./command-line.js";

const run = promisify(execFile);

const main = join(project, "dist/src/main.js");

/** A device to which nothing can be written: its disk is full. Linux has it. */
const full = "/dev/full";

test("a command whose output cannot be written fails, and says so", async (context) => {
  if (!existsSync(full)) skipTest(context, `there is no ${full}`);
  for (const args of [["completion", "bash"], ["--version"]]) {
    const command = spawn(process.execPath, [main, ...args], { stdio: ["ignore", openSync(full, "w"), "pipe"] });
    let stderr = "";
    command.stderr?.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    const [code] = await once(command, "close");
    expect(stderr.trim()).toMatch(/^The output could not be written: ENOSPC.*$/);
    expect(code).toBe(1);
  }
});

const app = await openFileApp();

test("the output of a command that fails is complete, although its reader is slow", async () => {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-cli-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "keys.json");
  // More output than a pipe holds, which is 64 KiB.
  const hashes = Array.from({ length: 2_000 }, (_, key) => createHash("sha256").update(`${key}`).digest("base64"));
  writeFileSync(file, JSON.stringify(hashes.map((hash) => ({ hash, name: "of another service" }))));
  const { key } = await commandLine(app).json("workspace", "create", "Acme");
  const args = ["key", "import", file, "--migration-id", "other"];
  expect((await commandLine(app, key).run(...args)).exitCode).toBe(0);

  // A pipe of the shell, because one of Node has a larger buffer.
  const script = '{ "$@"; echo "exit code $?" >&2; } | { dd bs=1 count=1 2>/dev/null; sleep 1; cat; }';
  const command = ["-c", script, "sh", process.execPath, main, ...args, "--json"];
  const env = { PATH: process.env["PATH"], LATCHKEY_ADDRESS: app.grpcAddress, LATCHKEY_CREDENTIAL: key };
  const { stdout, stderr } = await run("sh", command, { env });
  expect(stderr).toBe("exit code 5\n");
  expect(JSON.parse(stdout).failed).toEqual(hashes);
});

test("a service whose banner cannot be written serves", async (context) => {
  if (!existsSync(full)) skipTest(context, `there is no ${full}`);
  const { environment } = makeSandbox();
  const port = await unusedPort();
  const service = spawn(process.execPath, [main, "serve"], {
    env: { ...environment, HTTP_PORT: `${port}` },
    stdio: ["ignore", openSync(full, "w"), "ignore"],
  });
  onTestFinished(async () => {
    service.kill("SIGTERM");
    await once(service, "exit");
  });
  const status = async () => (await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined))?.status;
  await expect.poll(status, { timeout: 20_000 }).toBe(200);
  await sleep(500);
  expect(await status()).toBe(200);
});
