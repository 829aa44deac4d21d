import { spawnSync } from "node:child_process";
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { skipTest } from "../support/skip.js";
import { copyInstallation } from "./copies.js";
import { ifRunning, remainingProcesses } from "./processes.js";
import { call, makeSandbox, readSecret, type Sandbox, type Service, start, stop, waitForExit } from "./service.js";

/** `nobody`, which has this id on every Linux. */
const nobody = { uid: 65_534, gid: 65_534 };
const isRoot = process.getuid?.() === 0;

describe("the service runs", () => {
  test("as root, from a checkout inside a folder that other users cannot access", async (ctx) => {
    if (!isRoot)
      skipTest(ctx, "this test needs root: PostgreSQL then runs as another user, who cannot access the folder");
    const sandbox = makeSandbox();
    const closed = join(sandbox.folder, "closed");
    mkdirSync(closed, { mode: 0o700 });
    const checkout = join(closed, "checkout");
    copyInstallation(checkout);
    expect(spawnSync("cat", [join(checkout, "package.json")], nobody).status, "other users cannot read it").not.toBe(0);

    const service = await startFrom(checkout, sandbox, { DATA_DIR: join(checkout, ".latchkey") });
    expect(statSync(closed).mode & 0o777, "it stays inaccessible").toBe(0o700);
    await expectToServeAndStop(service, join(checkout, ".latchkey"), sandbox);
    // The first start and a restart may behave differently.
    const again = await startFrom(checkout, sandbox, { DATA_DIR: join(checkout, ".latchkey") });
    await expectToServeAndStop(again, join(checkout, ".latchkey"), sandbox);

    const abandoned = await startFrom(checkout, sandbox, { DATA_DIR: join(checkout, ".latchkey") });
    const descendants = abandoned.descendants();
    const host = descendants.find(({ command }) => /\/host\.js /.test(command));
    const programs = descendants.flatMap(({ command }) => /^(\/tmp\/\S+)\/bin\/postgres -D/.exec(command)?.[1] ?? []);
    expect(programs, "PostgreSQL runs from a copy of its programs").toHaveLength(1);
    process.kill(host?.pid ?? 0, "SIGKILL");
    expect(await waitForExit(abandoned)).toMatchObject({ code: 1 });
    expect(
      programs.filter((folder) => existsSync(folder)),
      "the copy does not remain if its host process is killed",
    ).toEqual([]);
  });

  test("as a regular user", async (ctx) => {
    if (!isRoot) skipTest(ctx, "the whole test run uses a regular user, so every other test covers this");
    const sandbox = makeSandbox();
    const checkout = join(sandbox.folder, "checkout");
    copyInstallation(checkout);
    if (spawnSync(process.execPath, ["--version"], { ...nobody, cwd: "/" }).status !== 0) {
      skipTest(ctx, `a regular user cannot run ${process.execPath} on this machine`);
    }
    mkdirSync(sandbox.dataDir);
    chownSync(sandbox.dataDir, nobody.uid, nobody.gid);
    chmodSync(sandbox.dataDir, 0o700);

    const service = await startFrom(checkout, sandbox, {}, nobody);
    const folders = service.descendants().map(({ pid }) => ifRunning(() => statSync(`/proc/${pid}`)));
    const users = folders.flatMap((folder) => folder?.uid ?? []);
    expect(users.length).toBeGreaterThan(4);
    expect(new Set(users)).toEqual(new Set([nobody.uid]));
    expect(statSync(sandbox.operatorKeyFile)).toMatchObject({ uid: nobody.uid });
    await expectToServeAndStop(service, sandbox.dataDir, sandbox);
  });
});

function startFrom(
  checkout: string,
  sandbox: Sandbox,
  set: Record<string, string>,
  user?: { uid: number; gid: number },
): Promise<Service> {
  const command = [process.execPath, join(checkout, "dist/src/main.js")] as const;
  return start(sandbox, { command, set, ...(user ? { user } : {}) });
}

async function expectToServeAndStop(service: Service, dataDir: string, sandbox: Sandbox): Promise<void> {
  const key = readSecret(join(dataDir, "first.key"));
  expect(await call(service, "/v1/keys.listKeys", key)).toMatchObject({ status: 200, data: [{ name: "first key" }] });
  const descendants = service.descendants();
  expect(await stop(service)).toMatchObject({ code: 0 });
  expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
  expect(readdirSync(sandbox.temporary), "no temporary file remains").toEqual([]);
}
