import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, test } from "vitest";
import { leftOf, type Process, until } from "./processes.js";
import {
  call,
  ending,
  expectReadableFailure,
  launch,
  makePlace,
  readSecret,
  type Service,
  start,
  stop,
} from "./service.js";

test("a PostgreSQL that is killed is started again: the service goes on, and every acknowledged write is there", async () => {
  const place = makePlace();
  const service = await start(place);
  const key = readSecret(place.firstKeyFile);
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
  const said = service.stderr().split("\n");
  expect(said.filter((line) => line.includes("the embedded PostgreSQL has ended"))).toHaveLength(3);
  await until(
    "it says so",
    () => (service.stderr().match(/PostgreSQL was restarted/g) ?? []).length === 3 || undefined,
  );

  const family = service.family();
  expect(await stop(service)).toMatchObject({ code: 0 });
  expect(await leftOf(family, place.folder)).toEqual([]);
});

test("why the process that hosts the backends fails is in the log, and nothing is left of it", async () => {
  const place = makePlace();
  const fault = join(place.folder, "fault.mjs");
  writeFileSync(
    fault,
    `if (process.argv[1]?.endsWith("host.js")) process.on("SIGUSR2", () => { throw new Error("made up"); });`,
  );
  const service = await start(place, { set: { NODE_OPTIONS: `--import ${pathToFileURL(fault).href}` } });
  const family = service.family();
  process.kill(hostOf(service).pid, "SIGUSR2");
  expect((await service.ended).code).not.toBe(0);
  const said = service.stderr().split("\n");
  const lines = said.filter((line) => line.includes("that hosts the embedded backends") && line.startsWith("{"));
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { reason: "made up", msg: "the process that hosts the embedded backends has failed and exits" },
  ]);
  expect(await leftOf(family, place.folder)).toEqual([]);
});

describe("while the process that hosts the backends is stuck, as on a file system that does not answer,", () => {
  const launchStuck = async () => {
    const place = makePlace();
    const fault = join(place.folder, "fault.mjs");
    writeFileSync(
      fault,
      `import fs from "node:fs";
      import { syncBuiltinESMExports } from "node:module";
      if (process.argv[1]?.endsWith("host.js")) fs.accessSync = () => { fs.writeFileSync("stuck", ""); for (;;); };
      syncBuiltinESMExports();`,
    );
    const launched = launch(place, { set: { NODE_OPTIONS: `--import ${pathToFileURL(fault).href}` } });
    await until("it is stuck", () => existsSync(join(place.folder, "stuck")) || undefined);
    return { place, launched, family: launched.family() };
  };

  test("the first SIGTERM ends the service, and it with the service", async () => {
    const { place, launched, family } = await launchStuck();
    launched.signal("SIGTERM");
    expect(await ending(launched)).toMatchObject({ code: 0, stderr: "" });
    expect(await leftOf(family, place.folder)).toEqual([]);
  });

  test("it does not outlive a service that is killed", async () => {
    const { place, launched, family } = await launchStuck();
    launched.signal("SIGKILL");
    expect(await leftOf(family, place.folder)).toEqual([]);
  });

  test("the service gives the start up after a while, and says so in a sentence", async () => {
    const { place, launched } = await launchStuck();
    expectReadableFailure(await ending(launched, 90_000), "DATA_DIR", /stuck for \d+ seconds/);
    expect(await leftOf([], place.folder)).toEqual([]);
  });
});

/** Creates identities one after the other; resolves to the status of the first that is refused. */
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
  const host = service.family().find(({ command }) => /\/host\.js /.test(command));
  if (host === undefined) throw new Error("there is no host of the backends");
  return host;
}

function postmasterOf(service: Service): Process {
  const host = hostOf(service);
  const family = service.family();
  const postmaster = family.find(({ command, parent }) => parent === host.pid && /\/postgres -D/.test(command));
  if (postmaster === undefined) throw new Error("there is no PostgreSQL");
  return postmaster;
}
