import { describe, expect } from "vitest";
import { openContract } from "./cases.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract();

/** Keys of two identities and without one, enabled and disabled, by name. */
const keys: Record<string, Record<string, unknown>> = {
  "a1 on": { externalId: "a" },
  "a2 off": { externalId: "a", enabled: false },
  "b1 on": { externalId: "b" },
  "a3 on": { externalId: "a" },
  "none off": { enabled: false },
  "a4 off": { externalId: "a", enabled: false },
};

/** Filters, and the keys that they match, newest last. */
const filters: [filter: Record<string, unknown>, names: string[]][] = [
  [{}, ["first key", ...Object.keys(keys)]],
  [{ externalId: "a" }, ["a1 on", "a2 off", "a3 on", "a4 off"]],
  [{ externalId: "b" }, ["b1 on"]],
  [{ externalId: "A" }, []],
  [{ externalId: "nobody" }, []],
  [{ enabled: true }, ["first key", "a1 on", "b1 on", "a3 on"]],
  [{ enabled: false }, ["a2 off", "none off", "a4 off"]],
  [{ externalId: "a", enabled: true }, ["a1 on", "a3 on"]],
  [{ externalId: "a", enabled: false }, ["a2 off", "a4 off"]],
];

async function fill({ ok, home }: Scene): Promise<void> {
  for (const [name, request] of Object.entries(keys)) await ok("createKey", home.key, { name, ...request });
}

/** The names of the keys, page by page. */
async function walk({ page, home }: Scene, request: Record<string, unknown>) {
  const pages: (string | undefined)[][] = [];
  let cursor: string | undefined;
  do {
    const { data, pagination } = await page(
      "listKeys",
      home.key,
      cursor === undefined ? request : { ...request, cursor },
    );
    pages.push(data.map(({ name }) => name));
    cursor = pagination?.cursor;
    expect(pagination?.hasMore).toBe(cursor !== undefined);
  } while (cursor !== undefined && pages.length < 20);
  return pages;
}

describe("the filters of listKeys", () => {
  everyProtocol("match keys by identity, by enabled, or by both, with pagination too", async (scene) => {
    await fill(scene);
    for (const [filter, names] of filters) {
      const what = JSON.stringify(filter);
      expect(await walk(scene, filter), what).toEqual([names]);
      for (const limit of [1, 2]) {
        const pages = await walk(scene, { ...filter, limit });
        expect(pages.flat(), what).toEqual(names);
        expect(pages, what).toHaveLength(Math.max(1, Math.ceil(names.length / limit)));
      }
    }
  });

  everyProtocol("filtering by identity reflects a key's new identity, or its removal", async (scene) => {
    const { keyId } = await scene.ok("createKey", scene.home.key, { name: "k", externalId: "a" });
    await scene.ok("updateKey", scene.home.key, { keyId, externalId: "b" });
    expect(await walk(scene, { externalId: "a" })).toEqual([[]]);
    expect(await walk(scene, { externalId: "b" })).toEqual([["k"]]);
    await scene.ok("deleteIdentity", scene.home.key, { externalId: "b" });
    expect(await walk(scene, { externalId: "b" })).toEqual([[]]);
    await scene.ok("createIdentity", scene.home.key, { externalId: "b" });
    expect(await walk(scene, { externalId: "b" })).toEqual([[]]);
  });

  everyProtocol(
    "tenant isolation: an identity with the same externalId in another workspace contributes no keys",
    async (scene) => {
      const other = await scene.newWorkspace();
      await scene.ok("createKey", other.key, { externalId: "a" });
      expect(await walk(scene, { externalId: "a" })).toEqual([[]]);
    },
  );

  everyProtocol("filtering by enabled ignores expiry and the state of the workspace", async (scene) => {
    await scene.newExpiredKey({ name: "late" });
    expect(await walk(scene, { enabled: true })).toEqual([["first key", "late"]]);
  });
});
