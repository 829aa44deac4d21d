import { spawnSync } from "node:child_process";
import { chmodSync, chownSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { leaveOut } from "../support/skip.js";
import { copyInstallation } from "./copies.js";
import { leftOf } from "./processes.js";
import { call, makePlace, type Place, readSecret, type Service, start, stop } from "./service.js";

/** `nobody`, which every Linux has under this number. */
const nobody = { uid: 65_534, gid: 65_534 };
const isRoot = process.getuid?.() === 0;

describe("the service runs", () => {
  test("as root, from a checkout below a folder that is closed to others", async (ctx) => {
    if (!isRoot)
      leaveOut(ctx, "only root can try this: PostgreSQL then runs as another user, who cannot enter the folder");
    const place = makePlace();
    const closed = join(place.folder, "closed");
    mkdirSync(closed, { mode: 0o700 });
    const checkout = join(closed, "checkout");
    copyInstallation(checkout);
    expect(spawnSync("cat", [join(checkout, "package.json")], nobody).status, "others cannot read it").not.toBe(0);

    const service = await startFrom(checkout, place, { DATA_DIR: join(checkout, ".latchkey") });
    expect(statSync(closed).mode & 0o777, "it stays closed").toBe(0o700);
    await expectToServeAndStop(service, join(checkout, ".latchkey"), place);
    // Its first start and its restart may differ.
    const again = await startFrom(checkout, place, { DATA_DIR: join(checkout, ".latchkey") });
    await expectToServeAndStop(again, join(checkout, ".latchkey"), place);
  });

  test("as an ordinary user", async (ctx) => {
    if (!isRoot) leaveOut(ctx, "the whole test run is one of an ordinary user, so every other test shows this");
    const place = makePlace();
    const checkout = join(place.folder, "checkout");
    copyInstallation(checkout);
    if (spawnSync(process.execPath, ["--version"], { ...nobody, cwd: "/" }).status !== 0) {
      leaveOut(ctx, `an ordinary user cannot run ${process.execPath} on this machine`);
    }
    mkdirSync(place.dataDir);
    chownSync(place.dataDir, nobody.uid, nobody.gid);
    chmodSync(place.dataDir, 0o700);

    const service = await startFrom(checkout, place, {}, nobody);
    for (const { pid } of service.family()) expect(statSync(`/proc/${pid}`).uid).toBe(nobody.uid);
    expect(statSync(place.operatorKeyFile)).toMatchObject({ uid: nobody.uid });
    await expectToServeAndStop(service, place.dataDir, place);
  });
});

function startFrom(
  checkout: string,
  place: Place,
  set: Record<string, string>,
  user?: { uid: number; gid: number },
): Promise<Service> {
  const command = [process.execPath, join(checkout, "dist/src/main.js")] as const;
  return start(place, { command, set, ...(user ? { user } : {}) });
}

async function expectToServeAndStop(service: Service, dataDir: string, place: Place): Promise<void> {
  const key = readSecret(join(dataDir, "first.key"));
  expect(await call(service, "/v1/keys.listKeys", key)).toMatchObject({ status: 200, data: [{ name: "first key" }] });
  const family = service.family();
  expect(await stop(service)).toMatchObject({ code: 0 });
  expect(await leftOf(family, place.folder)).toEqual([]);
  expect(readdirSync(place.temporary), "nothing stays in the folder for temporary files").toEqual([]);
}
