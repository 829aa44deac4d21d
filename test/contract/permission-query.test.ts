import { describe, expect } from "vitest";
import { openContract } from "./cases.js";

const { everyProtocol } = openContract();

/** Queries that keys with these permissions satisfy, and queries that they do not. */
const queries: { permissions: string[]; satisfied: string[]; unsatisfied: string[] }[] = [
  {
    permissions: ["a", "b.read"],
    satisfied: ["a", "b.read", "a AND b.read", "a OR x", "x OR a", "(a)", "((a))", "( a )", "  a  ", "(a)AND(b.read)"],
    unsatisfied: ["x", "b", "b.write", "b.read.all", "a AND x", "x AND a", "x OR y", "A", "B.read", "(x OR y) AND a"],
  },
  // AND has a higher precedence than OR, on either side; parentheses have the highest.
  {
    permissions: ["a"],
    satisfied: [
      "a OR x AND y",
      "x AND y OR a",
      "a OR a AND x",
      "a AND (x OR a)",
      "x OR (y OR (a))",
      "x AND y OR a AND a",
    ],
    unsatisfied: ["(a OR x) AND y", "y AND (a OR x)", "a AND x OR a AND y", "x OR y AND a", "(a) AND (x)"],
  },
  {
    permissions: ["a", "b"],
    satisfied: ["a AND b AND a", "a AND (b OR x) AND b", "x OR y OR b"],
    unsatisfied: ["a AND b AND x"],
  },
  // Operators are case-insensitive; names are not.
  {
    permissions: ["a", "b"],
    satisfied: ["a and b", "a And b", "x or a", "x oR a"],
    unsatisfied: ["a and x", "x or y", "A or B"],
  },
  { permissions: ["android", "order.or"], satisfied: ["android AND order.or"], unsatisfied: ["android AND order"] },
  {
    permissions: ["documents.*"],
    satisfied: ["documents.read", "documents.read.all", "documents.read AND documents.write"],
    unsatisfied: ["documents", "documentsx.read", "Documents.read", "files.read", "documents.read AND files.read"],
  },
  { permissions: ["a.b.*"], satisfied: ["a.b.c", "a.b.c.d"], unsatisfied: ["a.b", "a.c", "a"] },
  { permissions: ["*"], satisfied: ["anything", "a.b.c", "a AND b OR c", "*", "a.*"], unsatisfied: [] },
  // A wildcard in a query stands for itself: a key with all permissions that it covers today does not satisfy it.
  {
    permissions: ["a.*", "b.c", "b.d"],
    satisfied: ["a.*", "a.b.*", "a.* AND b.c", "b.* OR a.*"],
    unsatisfied: ["*", "b.*", "a.* AND b.*"],
  },
  { permissions: [], satisfied: [], unsatisfied: ["a", "a OR b"] },
  {
    permissions: ["documents:write", "a:b.*"],
    satisfied: ["documents:write", "a:b.c AND a:b.c:d"],
    unsatisfied: ["documents", "a:b", "a.b"],
  },
  { permissions: ["read-all_2", "1.2"], satisfied: ["read-all_2", "1.2"], unsatisfied: ["read-all"] },
  {
    permissions: ["a", "b"],
    satisfied: ["a\tAND\nb", "a\u00a0AND b", `${"(".repeat(50)}a${")".repeat(50)}`],
    unsatisfied: [],
  },
];

/** Queries with a syntax error, and the position of the error, counted from 1. */
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
  ["a AND documents*", 7],
  ["a AND documents:*", 7],
  ["a.*.b", 1],
  ["**", 1],
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
  for (const { permissions, satisfied, unsatisfied } of queries) {
    everyProtocol(
      `is evaluated for a key with the permissions ${permissions.join(" and ") || "(none)"}`,
      async (scene) => {
        const { key } = await scene.ok("createKey", scene.home.key, { permissions });
        const found: Record<string, string> = {};
        for (const permissions of [...satisfied, ...unsatisfied]) {
          found[permissions] = (await scene.ok("verifyKey", scene.home.key, { key, permissions })).code;
        }
        const expected = [
          ...satisfied.map((query) => [query, "VALID"]),
          ...unsatisfied.map((query) => [query, "INSUFFICIENT_PERMISSIONS"]),
        ];
        expect(found).toEqual(Object.fromEntries(expected));
      },
    );
  }

  everyProtocol("with a syntax error is refused, and the position named", async (scene) => {
    for (const [permissions, position] of unreadable) {
      const request = { key: scene.home.key, permissions };
      const { fields } = await scene.refused("application/invalid_input", "verifyKey", scene.home.key, request);
      expect(fields, permissions).toEqual([
        { location: "permissions", message: expect.stringMatching(new RegExp(`\\bposition ${position}\\b`)) },
      ]);
    }
  });

  everyProtocol(
    "with a syntax error is refused for every key, so that the error reveals nothing about the key",
    async (scene) => {
      const { key: disabled } = await scene.ok("createKey", scene.home.key, { enabled: false });
      const refusals = [];
      for (const key of [scene.home.key, "lk_unknown", disabled]) {
        const request = { key, permissions: "a AND" };
        refusals.push(await scene.refused("application/invalid_input", "verifyKey", scene.home.key, request));
      }
      for (const refusal of refusals) expect(refusal).toEqual(refusals[0]);
    },
  );

  everyProtocol(
    "of 1000 characters is accepted; one that is longer, empty or too deeply nested is refused",
    async (scene) => {
      const { home } = scene;
      const { key } = await scene.ok("createKey", home.key, { permissions: ["a"] });
      const maxLength = `${"a OR ".repeat(199)}abcde`;
      expect(maxLength).toHaveLength(1000);
      expect(await scene.ok("verifyKey", home.key, { key, permissions: maxLength })).toMatchObject({ code: "VALID" });
      for (const permissions of ["", `${maxLength}f`, "a\0b", `${"(".repeat(499)}a${")".repeat(499)}`]) {
        const { fields } = await scene.refused("application/invalid_input", "verifyKey", home.key, {
          key,
          permissions,
        });
        expect(fields?.map(({ location }) => location)).toEqual(["permissions"]);
      }
    },
  );
});
