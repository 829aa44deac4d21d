import { describe, expect } from "vitest";
import { openContract } from "./cases.js";

const { everyProtocol } = openContract();

/** What keys with these permissions hold, and what they do not. */
const queries: { held: string[]; holds: string[]; lacks: string[] }[] = [
  {
    held: ["a", "b.read"],
    holds: ["a", "b.read", "a AND b.read", "a OR x", "x OR a", "(a)", "((a))", "( a )", "  a  ", "(a)AND(b.read)"],
    lacks: ["x", "b", "b.write", "b.read.all", "a AND x", "x AND a", "x OR y", "A", "B.read", "(x OR y) AND a"],
  },
  // AND binds more tightly than OR, on either side; parentheses bind most tightly.
  {
    held: ["a"],
    holds: ["a OR x AND y", "x AND y OR a", "a OR a AND x", "a AND (x OR a)", "x OR (y OR (a))", "x AND y OR a AND a"],
    lacks: ["(a OR x) AND y", "y AND (a OR x)", "a AND x OR a AND y", "x OR y AND a", "(a) AND (x)"],
  },
  { held: ["a", "b"], holds: ["a AND b AND a", "a AND (b OR x) AND b", "x OR y OR b"], lacks: ["a AND b AND x"] },
  // The operators may be written in any letter case; names may not.
  { held: ["a", "b"], holds: ["a and b", "a And b", "x or a", "x oR a"], lacks: ["a and x", "x or y", "A or B"] },
  { held: ["android", "order.or"], holds: ["android AND order.or"], lacks: ["android AND order"] },
  {
    held: ["documents.*"],
    holds: ["documents.read", "documents.read.all", "documents.read AND documents.write"],
    lacks: ["documents", "documentsx.read", "Documents.read", "files.read", "documents.read AND files.read"],
  },
  { held: ["a.b.*"], holds: ["a.b.c", "a.b.c.d"], lacks: ["a.b", "a.c", "a"] },
  { held: ["*"], holds: ["anything", "a.b.c", "a AND b OR c"], lacks: [] },
  { held: [], holds: [], lacks: ["a", "a OR b"] },
  {
    held: ["documents:write", "a:b.*"],
    holds: ["documents:write", "a:b.c AND a:b.c:d"],
    lacks: ["documents", "a:b", "a.b"],
  },
  { held: ["read-all_2", "1.2"], holds: ["read-all_2", "1.2"], lacks: ["read-all"] },
  { held: ["a", "b"], holds: ["a\tAND\nb", "a\u00a0AND b", `${"(".repeat(50)}a${")".repeat(50)}`], lacks: [] },
];

/** Queries that cannot be read, and the position at which that shows, counted from 1. */
const unreadable: [query: string, position: number][] = [
  [" ", 2],
  ["AND", 1],
  ["a AND", 6],
  ["a OR ", 6],
  ["AND a", 1],
  ["a b", 3],
  ["a AND OR b", 7],
  ["a OR OR b", 6],
  ["a AND and b", 7],
  ["(a", 3],
  ["(a AND b", 9],
  ["a)", 2],
  ["(a))", 4],
  ["()", 2],
  ["a AND ()", 8],
  ["a (b)", 3],
  ["(a) b", 5],
  ["a AND documents.*", 7],
  ["*", 1],
  ["a..b", 1],
  ["a AND .b", 7],
  ["a AND b.", 7],
  ["a && b", 3],
  ["a, b", 1],
  ["NOT a", 5],
  ["a AND 'b'", 7],
  ["документы", 1],
  ["a AND é", 7],
];

describe("a permission query", () => {
  for (const { held, holds, lacks } of queries) {
    everyProtocol(`is answered for a key that holds ${held.join(" and ") || "nothing"}`, async (scene) => {
      const { key } = await scene.ok("createKey", scene.home.key, { permissions: held });
      const found: Record<string, string> = {};
      for (const permissions of [...holds, ...lacks]) {
        found[permissions] = (await scene.ok("verifyKey", scene.home.key, { key, permissions })).code;
      }
      const expected = [
        ...holds.map((query) => [query, "VALID"]),
        ...lacks.map((query) => [query, "INSUFFICIENT_PERMISSIONS"]),
      ];
      expect(found).toEqual(Object.fromEntries(expected));
    });
  }

  everyProtocol("that cannot be read is refused, and the position named", async (scene) => {
    for (const [permissions, position] of unreadable) {
      const request = { key: scene.home.key, permissions };
      const { fields } = await scene.refused("application/invalid_input", "verifyKey", scene.home.key, request);
      expect(fields, permissions).toEqual([
        { location: "permissions", message: expect.stringMatching(new RegExp(`\\bposition ${position}\\b`)) },
      ]);
    }
  });

  everyProtocol("that cannot be read is refused whatever the key: it tells nothing of it", async (scene) => {
    const { key: disabled } = await scene.ok("createKey", scene.home.key, { enabled: false });
    const refusals = [];
    for (const key of [scene.home.key, "lk_unknown", disabled]) {
      const request = { key, permissions: "a AND" };
      refusals.push(await scene.refused("application/invalid_input", "verifyKey", scene.home.key, request));
    }
    for (const refusal of refusals) expect(refusal).toEqual(refusals[0]);
  });

  everyProtocol("of 1000 characters is read; a longer one, an empty one or one too deep is refused", async (scene) => {
    const { home } = scene;
    const { key } = await scene.ok("createKey", home.key, { permissions: ["a"] });
    const longest = `${"a OR ".repeat(199)}abcde`;
    expect(longest).toHaveLength(1000);
    expect(await scene.ok("verifyKey", home.key, { key, permissions: longest })).toMatchObject({ code: "VALID" });
    for (const permissions of ["", `${longest}f`, "a\0b", `${"(".repeat(499)}a${")".repeat(499)}`]) {
      const { fields } = await scene.refused("application/invalid_input", "verifyKey", home.key, { key, permissions });
      expect(fields?.map(({ location }) => location)).toEqual(["permissions"]);
    }
  });
});
