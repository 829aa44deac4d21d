import { crc32 } from "node:zlib";
import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { type AuditEventResponse, readPage, succeed, walk } from "../support/calls.js";
import { createWorkspace, expectInvalid, post } from "../support/clients/http-requests.js";
import { openFileApp } from "../support/file-service.js";
import { operatorKey } from "../support/harness.js";

const app = await openFileApp();
const origin = app.httpUrl;

/** A list whose rows can be added and removed through the API. */
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

/** The first key of a new workspace, which reads the pages. */
interface FirstKey {
  readonly keyId: string;
  readonly key: string;
}

/** Concurrent changes between two pages: rows are added, and others, chosen by any number, are removed. */
const interlude = fc.record({ added: fc.nat(2), removed: fc.array(fc.nat(), { maxLength: 2 }) });
const schedule = fc.record({
  atFirst: fc.nat(10),
  limit: fc.integer({ min: 1, max: 4 }),
  interludes: fc.array(interlude, { maxLength: 6 }),
});

describe.each(lists)("pagination of $operation during concurrent changes", ({ operation, idName, add, remove }) => {
  it("returns each row that exists throughout exactly once, no row twice, newest last", async () => {
    const property = fc.asyncProperty(schedule, async ({ atFirst, limit, interludes }) => {
      const { key, keyId } = await succeed<FirstKey>(origin, "workspaces.createWorkspace", operatorKey, { name: "n" });
      const created = idName === "keyId" ? [keyId] : [];
      const addRow = async () => void created.push(await add(key, created.length));
      while (created.length < atFirst) await addRow();
      const throughout = new Set(created);
      const deleted = new Set<string>();
      const remainingInterludes = [...interludes];

      const rows = await walk<Record<string, string>>(origin, operation, key, { limit }, async () => {
        const { added, removed } = remainingInterludes.shift() ?? { added: 0, removed: [] };
        for (let i = 0; i < added; i++) await addRow();
        for (const number of removed) {
          const removable = created.filter((id) => id !== keyId && !deleted.has(id));
          const id = removable[number % removable.length];
          if (id === undefined) continue;
          await remove(key, id);
          deleted.add(id);
          throughout.delete(id);
        }
      });

      const seen = rows.map((row) => row[idName] ?? "");
      expect(new Set(seen).size, "no row twice").toBe(seen.length);
      expect(seen, "newest last").toEqual(created.filter((id) => seen.includes(id)));
      expect(
        [...throughout].filter((id) => !seen.includes(id)),
        "no row lost",
      ).toEqual([]);
    });
    await fc.assert(property, { numRuns: 10 });
  });
});

it("pagination of audit events while more are written returns each earlier one once, newest first", async () => {
  const property = fc.asyncProperty(schedule, async ({ atFirst, limit, interludes }) => {
    const { key } = await createWorkspace(origin);
    let number = 0;
    const addRow = () => succeed(origin, "identities.createIdentity", key, { externalId: `user_${number++}` });
    while (number < atFirst) await addRow();
    const operation = "workspaces.listAuditEvents";
    const existing = await walk<AuditEventResponse>(origin, operation, key, {});
    const remainingInterludes = [...interludes];
    const seen = await walk<AuditEventResponse>(origin, operation, key, { limit }, async () => {
      for (let added = remainingInterludes.shift()?.added ?? 0; added > 0; added--) await addRow();
    });
    expect(existing).toHaveLength(atFirst + 2);
    expect(seen).toEqual(existing);
  });
  await fc.assert(property, { numRuns: 10 });
});

describe("an invalid cursor is refused, and the error names the field `cursor`", () => {
  const operations = ["keys.listKeys", "identities.listIdentities", "workspaces.listAuditEvents"] as const;
  let key: string;
  let cursors: Record<(typeof operations)[number], string>;

  beforeAll(async () => {
    ({ key } = await createWorkspace(origin));
    for (const externalId of ["a", "b"]) await succeed(origin, "keys.createKey", key, { externalId });
    const issued = async (operation: string) =>
      (await readPage(origin, operation, key, { limit: 1 })).pagination.cursor ?? expect.fail("the page has no cursor");
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

  it("a cursor with one character changed, inserted or removed", async () => {
    const edits = fc.asyncProperty(
      operation,
      fc.nat(),
      fc.nat(1),
      fc.string({ maxLength: 1 }),
      async (list, number, removed, inserted) => {
        const cursor = cursors[list];
        const at = number % cursor.length;
        const edited = cursor.slice(0, at) + inserted + cursor.slice(at + removed);
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
    ["no id", ""],
    ["an id of another kind", "id_01m7ek0j34e00rk83h700fgn1x"],
    ["a text that has not the format of an id", "x"],
    ["a character that PostgreSQL cannot store", "key_\0"],
    ["a quote", "key_' or true --"],
  ])("a forged cursor with the right checksum and %s", async (_what, id) => {
    const text = `keys:${id}`;
    await expectRefused("keys.listKeys", Buffer.from(`${crc32(text).toString(36)}:${text}`).toString("base64url"));
  });
});
