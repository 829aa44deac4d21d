import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { leaveOut } from "../support/skip.js";
import { leftOf } from "./processes.js";
import { call, makePlace, type Place, readSecret, type Service, start, stop } from "./service.js";

describe("the embedded Redis", () => {
  test("is a server from the PATH where there is one, and ends with the service", async (context) => {
    const program = ["valkey-server", "redis-server"].find((name) => spawnSync(name, ["--version"]).status === 0);
    if (program === undefined) leaveOut(context, "this machine has neither valkey-server nor redis-server");
    const place = makePlace();
    const service = await start(place);
    const family = service.family();
    expect(family.map(({ command }) => command).join("\n")).toMatch(/(valkey|redis)-server/);
    await expectToServe(service, place);
    await stop(service);
    expect(await leftOf(family, place.folder)).toEqual([]);
  });

  test.each([
    ["that cannot be run", "#!/nonexistent\n"],
    ["that ends at once", "#!/bin/sh\nexit 1\n"],
  ])("is Valkey as WebAssembly when the PATH has a server %s", async (_, script) => {
    const place = makePlace();
    const programs = join(place.folder, "programs");
    mkdirSync(programs);
    writeFileSync(join(programs, "valkey-server"), script);
    chmodSync(join(programs, "valkey-server"), 0o755);
    const service = await start(place, { set: { PATH: `${programs}:${place.environment["PATH"]}` } });
    const family = service.family();
    await expectToServe(service, place);
    await stop(service);
    expect(await leftOf(family, place.folder)).toEqual([]);
  });
});

async function expectToServe(service: Service, place: Place): Promise<void> {
  const answer = await call(service, "/v1/keys.listKeys", readSecret(place.firstKeyFile));
  expect(answer).toMatchObject({ status: 200, data: [{ name: "first key" }] });
}
