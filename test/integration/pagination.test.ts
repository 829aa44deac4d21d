import { crc32 } from "node:zlib";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readPage, succeed, type ToldEvent, walk } from "../support/calls.js";
import { createWorkspace, expectInvalid, post } from "../support/clients/http-requests.js";
import { openTestApp, operatorKey, type TestApp } from "../support/harness.js";

let app: TestApp;
let origin: string;

beforeAll(async () => {
  app = await openTestApp();
  origin = app.httpUrl;
});
afterAll(() => app.close());

/** A list whose rows can be added and taken away through the front protocol. */
interface RowList {
  readonly operation: string;
  readonly idName: "keyId" | "identityId";
  add(key: string, number: number): Promise<string>;
  remove(key: string, id: string): Promise<unknown>;
}

const lists: RowList[] = [
  {
    operation: "keys.listKeys",
    idName: "keyId",
    add: async (key) => (await succeed<{ keyId: string }>(origin, "keys.createKey", key, {})).keyId,
    remove: (key, keyId) => succeed(origin, "keys.deleteKey", key, { keyId }),
  },
  {
    operation: "identities.listIdentities",
    idName: "identityId",
    add: async (key, number) => {
      const body = { externalId: `user_${number}` };
      return (await succeed<{ identityId: string }>(origin, "identities.createIdentity", key, body)).identityId;
    },
    remove: (key, identityId) => succeed(origin, "identities.deleteIdentity", key, { identityId }),
  },
];

/** A fresh workspace's first key, with which the walk is made. */
interface FirstKey {
  readonly keyId: string;
  readonly key: string;
}

/** What happens between two pages: rows are added, and others, by any number, are taken away. */
const interlude = fc.record({ added: fc.nat(2), removed: fc.array(fc.nat(), { maxLength: 2 }) });
const schedule = fc.record({
  atFirst: fc.nat(10),
  limit: fc.integer({ min: 1, max: 4 }),
  interludes: fc.array(interlude, { maxLength: 6 }),
});

describe.each(lists)("a walk through $operation while rows come and go", ({ operation, idName, add, remove }) => {
  it("sees each row that is there throughout exactly once, no row twice, newest last", async () => {
    const property = fc.asyncProperty(schedule, async ({ atFirst, limit, interludes }) => {
      const { key, keyId } = await succeed<FirstKey>(origin, "workspaces.createWorkspace", operatorKey, { name: "n" });
      const made = idName === "keyId" ? [keyId] : [];
      const grow = async () => void made.push(await add(key, made.length));
      while (made.length < atFirst) await grow();
      const throughout = new Set(made);
      const gone = new Set<string>();
      const left = [...interludes];

      const rows = await walk<Record<string, string>>(origin, operation, key, { limit }, async () => {
        const { added, removed } = left.shift() ?? { added: 0, removed: [] };
        for (let i = 0; i < added; i++) await grow();
        for (const number of removed) {
          const removable = made.filter((id) => id !== keyId && !gone.has(id));
          const id = removable[number % removable.length];
          if (id === undefined) continue;
          await remove(key, id);
          gone.add(id);
          throughout.delete(id);
        }
      });

      const seen = rows.map((row) => row[idName] ?? "");
      expect(new Set(seen).size, "no row twice").toBe(seen.length);
      expect(seen, "newest last").toEqual(made.filter((id) => seen.includes(id)));
      expect(
        [...throughout].filter((id) => !seen.includes(id)),
        "no row lost",
      ).toEqual([]);
    });
    await fc.assert(property, { numRuns: 10 });
  });
});

it("a walk through the events while more are made sees each that was there exactly once, newest first", async () => {
  const property = fc.asyncProperty(schedule, async ({ atFirst, limit, interludes }) => {
    const { key } = await createWorkspace(origin);
    let number = 0;
    const grow = () => succeed(origin, "identities.createIdentity", key, { externalId: `user_${number++}` });
    while (number < atFirst) await grow();
    const operation = "workspaces.listAuditEvents";
    const there = await walk<ToldEvent>(origin, operation, key, {});
    const left = [...interludes];
    const seen = await walk<ToldEvent>(origin, operation, key, { limit }, async () => {
      for (let added = left.shift()?.added ?? 0; added > 0; added--) await grow();
    });
    expect(there).toHaveLength(atFirst + 2);
    expect(seen).toEqual(there);
  });
  await fc.assert(property, { numRuns: 10 });
});

describe("a text that is not a cursor of ours is refused, and the cursor is named", () => {
  const operations = ["keys.listKeys", "identities.listIdentities", "workspaces.listAuditEvents"] as const;
  let key: string;
  let cursors: Record<(typeof operations)[number], string>;

  beforeAll(async () => {
    ({ key } = await createWorkspace(origin));
    for (const externalId of ["a", "b"]) await succeed(origin, "keys.createKey", key, { externalId });
    const issued = async (operation: string) =>
      (await readPage(origin, operation, key, { limit: 1 })).pagination.cursor ?? expect.fail("there is no cursor");
    cursors = {
      "keys.listKeys": await issued("keys.listKeys"),
      "identities.listIdentities": await issued("identities.listIdentities"),
      "workspaces.listAuditEvents": await issued("workspaces.listAuditEvents"),
    };
  });

  async function expectRefused(operation: string, cursor: string): Promise<void> {
    expect(expectInvalid(await post(origin, `/v2/${operation}`, key, { cursor }))).toEqual(["cursor"]);
  }
  const operation = fc.constantFrom(...operations);

  it("any text", async () => {
    const text = fc.oneof(fc.string({ unit: "binary" }), fc.base64String(), fc.stringMatching(/^[A-Za-z0-9_-]{1,80}$/));
    await fc.assert(fc.asyncProperty(operation, text, expectRefused), { numRuns: 60 });
  });

  it("a cursor with one character changed, put in or left out", async () => {
    const edits = fc.asyncProperty(
      operation,
      fc.nat(),
      fc.nat(1),
      fc.string({ maxLength: 1 }),
      async (list, number, out, more) => {
        const cursor = cursors[list];
        const at = number % cursor.length;
        const edited = cursor.slice(0, at) + more + cursor.slice(at + out);
        fc.pre(edited !== cursor);
        await expectRefused(list, edited);
      },
    );
    await fc.assert(edits, { numRuns: 60 });
  });

  it("a cursor of another list", async () => {
    for (const list of operations) {
      for (const other of operations) if (other !== list) await expectRefused(list, cursors[other]);
    }
  });

  it.each([
    ["no id at all", ""],
    ["an id of another kind", "id_01m7ek0j34e00rk83h700fgn1x"],
    ["no id's form", "x"],
    ["a character that Postgres cannot hold", "key_\0"],
    ["a quote", "key_' or true --"],
  ])("a forgery with the right checksum, but of %s", async (_what, id) => {
    const text = `keys:${id}`;
    await expectRefused("keys.listKeys", Buffer.from(`${crc32(text).toString(36)}:${text}`).toString("base64url"));
  });
});
