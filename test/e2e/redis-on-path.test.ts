import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { skipTest } from "../support/skip.js";
import { remainingProcesses } from "./processes.js";
import { call, makeSandbox, readSecret, type Sandbox, type Service, start, stop } from "./service.js";

describe("the embedded Redis", () => {
  test("is a server from the PATH if there is one, and exits with the service", async (context) => {
    const program = ["valkey-server", "redis-server"].find((name) => spawnSync(name, ["--version"]).status === 0);
    if (program === undefined) skipTest(context, "this machine has neither valkey-server nor redis-server");
    const sandbox = makeSandbox();
    const service = await start(sandbox);
    const descendants = service.descendants();
    expect(descendants.map(({ command }) => command).join("\n")).toMatch(/(valkey|redis)-server/);
    await expectToServe(service, sandbox);
    await stop(service);
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
  });

  test.each([
    ["that cannot be started", "#!/nonexistent\n"],
    ["that exits immediately", "#!/bin/sh\nexit 1\n"],
  ])("is Valkey as WebAssembly when the PATH has a server %s", async (_, script) => {
    const sandbox = makeSandbox();
    const programs = join(sandbox.folder, "programs");
    mkdirSync(programs);
    writeFileSync(join(programs, "valkey-server"), script);
    chmodSync(join(programs, "valkey-server"), 0o755);
    const service = await start(sandbox, { set: { PATH: `${programs}:${sandbox.environment["PATH"]}` } });
    const descendants = service.descendants();
    await expectToServe(service, sandbox);
    await stop(service);
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
  });
});

async function expectToServe(service: Service, sandbox: Sandbox): Promise<void> {
  const response = await call(service, "/v1/keys.listKeys", readSecret(sandbox.firstKeyFile));
  expect(response).toMatchObject({ status: 200, data: [{ name: "first key" }] });
}
