import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, test } from "vitest";
import { type Process, remainingProcesses, until } from "./processes.js";
import {
  call,
  expectUserError,
  launch,
  makeSandbox,
  readSecret,
  type Service,
  start,
  stop,
  waitForExit,
} from "./service.js";

test("a killed embedded PostgreSQL is restarted: the service continues, and every acknowledged write exists", async () => {
  const sandbox = makeSandbox();
  const service = await start(sandbox);
  const key = readSecret(sandbox.firstKeyFile);
  const acknowledged: string[] = [];

  for (let round = 0; round < 3; round++) {
    const writing = writeUntilRefused(service, key, `round-${round}`, acknowledged);
    await until("some writes are acknowledged", () => acknowledged.length > round * 5 || undefined);
    process.kill(postmasterOf(service).pid, "SIGKILL");
    expect(await writing, "unavailable, and nothing else").toBe(503);
    await until("it serves again", async () => (await status(service, key)) === 200 || undefined);
  }

  for (const externalId of acknowledged) {
    const { data } = await call(service, "/v2/identities.getIdentity", key, { externalId });
    expect(data).toMatchObject({ externalId });
  }
  const logLines = service.stderr().split("\n");
  expect(logLines.filter((line) => line.includes("the embedded PostgreSQL exited"))).toHaveLength(3);
  await until(
    "the restarts are logged",
    () => (service.stderr().match(/PostgreSQL was restarted/g) ?? []).length === 3 || undefined,
  );

  const descendants = service.descendants();
  expect(await stop(service)).toMatchObject({ code: 0 });
  expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
});

test("if the process that hosts the backends fails, the reason is logged and no process remains", async () => {
  const sandbox = makeSandbox();
  const fault = join(sandbox.folder, "fault.mjs");
  writeFileSync(
    fault,
    `if (process.argv[1]?.endsWith("host.js")) process.on("SIGUSR2", () => { throw new Error("made up"); });`,
  );
  const service = await start(sandbox, { set: { NODE_OPTIONS: `--import ${pathToFileURL(fault).href}` } });
  const descendants = service.descendants();
  process.kill(hostOf(service).pid, "SIGUSR2");
  expect((await service.ended).code).not.toBe(0);
  const logLines = service.stderr().split("\n");
  const lines = logLines.filter((line) => line.includes("that hosts the embedded backends") && line.startsWith("{"));
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { reason: "made up", msg: "the process that hosts the embedded backends has failed and exits" },
  ]);
  expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
});

describe("while the process that hosts the backends is stuck, for example on a file system that does not respond,", () => {
  const launchStuck = async () => {
    const sandbox = makeSandbox();
    const fault = join(sandbox.folder, "fault.mjs");
    writeFileSync(
      fault,
      `import fs from "node:fs";
      import { syncBuiltinESMExports } from "node:module";
      if (process.argv[1]?.endsWith("host.js")) fs.accessSync = () => { fs.writeFileSync("stuck", ""); for (;;); };
      syncBuiltinESMExports();`,
    );
    const launched = launch(sandbox, { set: { NODE_OPTIONS: `--import ${pathToFileURL(fault).href}` } });
    await until("it is stuck", () => existsSync(join(sandbox.folder, "stuck")) || undefined);
    return { sandbox, launched, descendants: launched.descendants() };
  };

  test("the first SIGTERM stops the service and the host process", async () => {
    const { sandbox, launched, descendants } = await launchStuck();
    launched.signal("SIGTERM");
    expect(await waitForExit(launched)).toMatchObject({ code: 0, stderr: "" });
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
  });

  test("the host process does not outlive a killed service", async () => {
    const { sandbox, launched, descendants } = await launchStuck();
    launched.signal("SIGKILL");
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
  });

  test("the start fails after a timeout, with a readable error", async () => {
    const { sandbox, launched } = await launchStuck();
    expectUserError(await waitForExit(launched, 90_000), "DATA_DIR", /stuck for \d+ seconds/);
    expect(await remainingProcesses([], sandbox.folder)).toEqual([]);
  });
});

/** Creates identities one after the other. Resolves to the status of the first refused request. */
async function writeUntilRefused(service: Service, key: string, prefix: string, acknowledged: string[]) {
  for (let number = 0; ; number++) {
    const externalId = `${prefix}-${number}`;
    const { status } = await call(service, "/v2/identities.createIdentity", key, { externalId });
    if (status !== 200) return status;
    acknowledged.push(externalId);
  }
}

async function status(service: Service, key: string): Promise<number> {
  return (await call(service, "/v2/identities.listIdentities", key)).status;
}

function hostOf(service: Service): Process {
  const host = service.descendants().find(({ command }) => /\/host\.js /.test(command));
  if (host === undefined) throw new Error("no process hosts the backends");
  return host;
}

function postmasterOf(service: Service): Process {
  const host = hostOf(service);
  const descendants = service.descendants();
  const postmaster = descendants.find(({ command, parent }) => parent === host.pid && /\/postgres -D/.test(command));
  if (postmaster === undefined) throw new Error("PostgreSQL does not run");
  return postmaster;
}
