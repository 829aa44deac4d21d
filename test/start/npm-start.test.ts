import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { copySources } from "./copies.js";
import { leftOf } from "./processes.js";
import { call, ending, makePlace, readSecret, start } from "./service.js";

describe("npm start", () => {
  test("builds and serves, with its data in .latchkey by default; Ctrl-C leaves nothing behind and is no fault", async () => {
    const { place, dataDir, service } = await npmStart();
    expect(service.stdout()).toContain(dataDir);
    const key = readSecret(join(dataDir, "first.key"));
    expect(service.printedKey).toBe(key);
    expect(await call(service, "/v1/keys.listKeys", key)).toMatchObject({ status: 200, data: [{ name: "first key" }] });
    const family = service.family();
    expect(family.length).toBeGreaterThan(4);

    service.signalGroup("SIGINT");
    const { stderr } = await ending(service);
    expect(await leftOf(family, place.folder)).toEqual([]);
    expect(stderr).not.toMatch(/npm err/i);
  });

  test("SIGTERM to npm, as process managers send it, stops the service too and leaves nothing behind", async () => {
    const { place, service } = await npmStart();
    const family = service.family();

    service.signal("SIGTERM");
    expect(await leftOf(family, place.folder)).toEqual([]);
  });
});

/** In a private copy, because `npm start` builds, and others run from the build of the checkout. */
async function npmStart() {
  const place = makePlace();
  const cwd = join(place.folder, "checkout");
  copySources(cwd);
  const service = await start(place, { command: ["npm", "start"], cwd, set: { DATA_DIR: undefined } });
  return { place, dataDir: join(cwd, ".latchkey"), service };
}
