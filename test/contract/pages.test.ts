import { describe, expect } from "vitest";
import type { CallRequest } from "../support/clients/protocol-client.js";
import { operatorKey } from "../support/harness.js";
import type { PaginationResponse } from "../support/responses.js";
import { openContract } from "./cases.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract();
const invalid = "application/invalid_input";

/** The lists of a workspace: how to add a row, and the initial number of rows. */
const lists = {
  listKeys: { add: ({ ok, home }: Scene) => ok("createKey", home.key, {}).then(({ keyId }) => keyId), already: 1 },
  listIdentities: {
    add: ({ ok, home }: Scene, index: number) =>
      ok("createIdentity", home.key, { externalId: `user_${index}` }).then(({ identityId }) => identityId),
    already: 0,
  },
  listApis: {
    add: ({ ok, home }: Scene, index: number) =>
      ok("createApi", home.key, { name: `API ${index}` }).then(({ apiId }) => apiId),
    already: 0,
  },
  listPermissions: {
    add: ({ ok, home }: Scene, index: number) =>
      ok("createPermission", home.key, { name: "Read", slug: `documents.read_${index}` }).then(
        ({ permissionId }) => permissionId,
      ),
    already: 0,
  },
  listRoles: {
    add: ({ ok, home }: Scene, index: number) =>
      ok("createRole", home.key, { name: `role ${index}`, permissions: ["documents.read"] }).then(
        ({ roleId }) => roleId,
      ),
    already: 0,
  },
  listOverrides: {
    add: ({ ok, home }: Scene, index: number) =>
      ok("setOverride", home.key, { namespace, identifier: `user_${index}`, limit: index, duration: 60_000 }).then(
        ({ overrideId }) => overrideId,
      ),
    already: 0,
  },
} as const;

type ListName = keyof typeof lists;

const namespace = "email.send";

/** What a list must be given besides its page. */
const always: Partial<Record<ListName, CallRequest>> = { listOverrides: { namespace } };

/** Adds rows up to this count; returns their ids, oldest first. */
async function fill(scene: Scene, list: ListName, count: number): Promise<string[]> {
  const { add, already } = lists[list];
  const ids = already === 1 ? [scene.home.keyId] : [];
  for (let index = ids.length; index < count; index++) ids.push(await add(scene, index));
  return ids;
}

function idsOf(rows: readonly object[]): unknown[] {
  const names = ["keyId", "identityId", "overrideId", "id"];
  return rows.map((row) => Object.entries(row).find(([name]) => names.includes(name))?.[1]);
}

/** Follows the cursors to the end. */
async function walk(scene: Scene, list: ListName, limit: number) {
  const pages: unknown[][] = [];
  const paginations: (PaginationResponse | undefined)[] = [];
  let cursor: string | undefined;
  do {
    const request = { ...always[list], limit, ...(cursor !== undefined && { cursor }) };
    const { data, pagination } = await scene.page(list, scene.home.key, request);
    pages.push(idsOf(data));
    paginations.push(pagination);
    cursor = pagination?.cursor;
  } while (cursor !== undefined && pages.length < 200);
  return { pages, paginations };
}

async function cursorOf(scene: Scene, list: ListName, credential: string): Promise<string> {
  const { pagination } = await scene.page(list, credential, { ...always[list], limit: 1 });
  return pagination?.cursor ?? expect.fail(`${list} returned no cursor`);
}

describe.each(Object.keys(lists) as ListName[])("pagination of %s", (list) => {
  for (const limit of [1, 2, 5, 100]) {
    everyProtocol(`${list} in pages of ${limit} returns each of 5 rows exactly once, newest last`, async (scene) => {
      const ids = await fill(scene, list, 5);
      const { pages, paginations } = await walk(scene, list, limit);
      expect(pages.flat()).toEqual(ids);
      expect(pages).toHaveLength(Math.ceil(5 / limit));
      expect(paginations.at(-1)).toEqual({ hasMore: false });
      for (const pagination of paginations.slice(0, -1)) {
        expect(pagination).toEqual({ hasMore: true, cursor: expect.stringMatching(/./) });
      }
    });
  }

  everyProtocol(`${list} returns a row added between two pages at the end, and no row twice`, async (scene) => {
    const ids = await fill(scene, list, 3);
    const { data, pagination } = await scene.page(list, scene.home.key, { ...always[list], limit: 2 });
    ids.push(await lists[list].add(scene, 3));
    const rest = await scene.page(list, scene.home.key, { ...always[list], cursor: pagination?.cursor });
    expect([...idsOf(data), ...idsOf(rest.data)]).toEqual(ids);
  });

  for (const limit of [0, 101, -1, 2147483647]) {
    everyProtocol(`${list} with the limit ${limit} is refused, and the limit named`, async (scene) => {
      const { fields } = await scene.refused(invalid, list, scene.home.key, { ...always[list], limit });
      expect(fields?.map(({ location }) => location)).toEqual(["limit"]);
    });
  }

  everyProtocol(`${list} refuses a cursor that was never issued, and names it`, async (scene) => {
    await fill(scene, list, 3);
    const cursor = await cursorOf(scene, list, scene.home.key);
    const lastId = Buffer.from(scene.home.keyId).toString("base64url");
    const changed = (cursor.startsWith("A") ? "B" : "A") + cursor.slice(1);
    const forged = ["", "garbled", "!", "💥", scene.home.keyId, lastId, "a\0b", "x".repeat(300)];
    for (const wrong of [
      ...forged,
      changed,
      `${cursor}A`,
      cursor.slice(1),
      cursor.slice(0, -2),
      ` ${cursor}`,
      `${cursor}=`,
    ]) {
      const { fields } = await scene.refused(invalid, list, scene.home.key, { ...always[list], cursor: wrong });
      expect(fields?.map(({ location }) => location)).toEqual(["cursor"]);
    }
  });

  everyProtocol(`${list} refuses the cursors of the other lists`, async (scene) => {
    const others = (Object.keys(lists) as ListName[]).filter((other) => other !== list);
    const ofWorkspaces = await scene.protocol.call("listWorkspaces", operatorKey, { limit: 1 });
    const cursors: string[] = [];
    for (const other of others) {
      await fill(scene, other, 2);
      cursors.push(await cursorOf(scene, other, scene.home.key));
    }
    if (ofWorkspaces.ok) cursors.push(ofWorkspaces.pagination?.cursor ?? "");
    for (const cursor of cursors) {
      const { fields } = await scene.refused(invalid, list, scene.home.key, { ...always[list], cursor });
      expect(fields?.map(({ location }) => location)).toEqual(["cursor"]);
    }
  });

  everyProtocol(
    `tenant isolation: another workspace's cursor of ${list} returns no rows of that workspace`,
    async (scene) => {
      const ids = await fill(scene, list, 3);
      const cursor = await cursorOf(scene, list, scene.home.key);
      const other = await scene.newWorkspace();
      const outcome = await scene.call(list, other.key, { ...always[list], cursor });
      if (outcome.ok) expect(idsOf(outcome.data as object[]).filter((id) => ids.includes(String(id)))).toEqual([]);
      else expect(outcome.code).toBe(invalid);
    },
  );
});

everyProtocol("a list returns at most 100 rows by default", async (scene) => {
  const ids = await fill(scene, "listIdentities", 101);
  const { data, pagination } = await scene.page("listIdentities", scene.home.key);
  expect(idsOf(data)).toEqual(ids.slice(0, 100));
  expect(pagination?.hasMore).toBe(true);
  const rest = await scene.page("listIdentities", scene.home.key, { cursor: pagination?.cursor });
  expect(idsOf(rest.data)).toEqual(ids.slice(100));
});
