import fc from "fast-check";
import stringWidth from "string-width";
import { expect, it } from "vitest";
import { fitColumns, padEnd, shorten } from "../../../src/cli/table-layout.js";

const id = "key_01jd9wzr3xfg2tq5d0v8m1c7ha";
const columns = [
  ["ID", id],
  ["NAME", "a name that is far too long for a table"],
  ["PERMISSIONS", "documents.read, documents.write"],
  ["CREATED", "2030-01-31T12:00:00.000Z"],
];

it("a table without a limit has all columns in their full width", () => {
  expect(fitColumns(columns, 0)).toEqual({ widths: [30, 39, 31, 24], hidden: [] });
});

it("a table that fits is not changed", () => {
  expect(fitColumns(columns, 130)).toEqual({ widths: [30, 39, 31, 24], hidden: [] });
});

it("texts and lists are shortened first, the widest at the start; ids and times stay whole", () => {
  expect(fitColumns(columns, 120)).toEqual({ widths: [30, 30, 30, 24], hidden: [] });
  expect(fitColumns(columns, 90)).toEqual({ widths: [30, 15, 15, 24], hidden: [] });
});

it("columns that do not fit are hidden from the end, and named", () => {
  expect(fitColumns(columns, 60)).toEqual({ widths: [30, 13, 13], hidden: ["CREATED"] });
  expect(fitColumns(columns, 10)).toEqual({ widths: [30], hidden: ["NAME", "PERMISSIONS", "CREATED"] });
});

it("a shortened text ends with an ellipsis and never exceeds the width on a terminal", () => {
  expect(shorten("customer", 8)).toBe("customer");
  expect(shorten("customer 7", 8)).toBe("custome…");
  expect(shorten("日本語の名前", 7)).toBe("日本語…");
  expect(shorten("日本語の名前", 8)).toBe("日本語…"); // half of a character cannot be shown
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), fc.integer({ min: 1, max: 40 }), (text, width) => {
      expect(stringWidth(shorten(text, width))).toBeLessThanOrEqual(width);
    }),
  );
});

it("a letter keeps its accents", () => {
  expect(shorten("e\u0301e\u0301e\u0301", 2)).toBe("e\u0301…");
});

it("texts are padded by their width on a terminal", () => {
  expect(padEnd("日本", 6)).toBe("日本  ");
  expect(padEnd("Acme", 6)).toBe("Acme  ");
});
