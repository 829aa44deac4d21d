import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, openSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { skipTest } from "../../support/skip.js";
import { makeSandbox, project, unusedPort } from "../service.js";

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
