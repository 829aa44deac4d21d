import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ErrorCode } from "../../../gen/latchkey/v1/errors_pb.js";
import { covers } from "../../../src/call/permissions.js";
import { ApiError } from "../../../src/errors.js";
import { parsePermissionQuery } from "../../../src/keys/permission-query.js";

/** A query as a tree. */
type Expression = string | { readonly operator: "AND" | "OR"; readonly parts: readonly Expression[] };

const name = fc
  .stringMatching(/^[A-Za-z0-9_-]{1,4}(\.[A-Za-z0-9_-]{1,4}){0,2}$/)
  .filter((text) => !/^(and|or)$/i.test(text));
const nameSet = fc.uniqueArray(name, { minLength: 1, maxLength: 5 });

function expressionOver(names: readonly string[]): fc.Arbitrary<Expression> {
  return fc.letrec<{ expression: Expression }>((tie) => ({
    expression: fc.oneof(
      { depthSize: "small", maxDepth: 6, withCrossShrink: true },
      fc.constantFrom(...names),
      fc.record({
        operator: fc.constantFrom("AND" as const, "OR" as const),
        parts: fc.array(tie("expression"), { minLength: 1, maxLength: 4 }),
      }),
    ),
  })).expression;
}

function evaluate(expression: Expression, granted: ReadonlySet<string>): boolean {
  if (typeof expression === "string") return granted.has(expression);
  const { operator, parts } = expression;
  return operator === "AND"
    ? parts.every((part) => evaluate(part, granted))
    : parts.some((part) => evaluate(part, granted));
}

/** Writes an expression with only the parentheses that it needs. */
function print(expression: Expression, within: "AND" | "OR" = "OR"): string {
  if (typeof expression === "string") return expression;
  const { operator, parts } = expression;
  if (parts.length === 1 && parts[0] !== undefined) return print(parts[0], within);
  const text = parts.map((part) => print(part, operator)).join(` ${operator} `);
  return operator === "OR" && within === "AND" ? `(${text})` : text;
}

/** Writes an expression with parentheses around every part, and unusual spaces and letter case. */
function printOddly(expression: Expression, odd: (choices: readonly string[]) => string): string {
  const space = () => odd(["", " ", "\t", "\n  "]);
  if (typeof expression === "string") return `(${space()}${expression}${space()})`;
  const { operator, parts } = expression;
  const word = () => odd([operator, operator.toLowerCase(), operator.charAt(0) + operator.slice(1).toLowerCase()]);
  return `(${parts.map((part) => printOddly(part, odd)).reduce((all, part) => `${all}${space()}${word()}${space()}${part}`)})`;
}

const openings = (text: string) => text.split("(").length - 1;

/** The error of a query; undefined if the query is valid. */
function errorOf(text: string): ApiError | undefined {
  try {
    parsePermissionQuery(text);
    return undefined;
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
}

/** Expects `invalid_input` of `permissions` with the position of a token, or of the end. */
function expectNamesPosition(text: string, error: ApiError): number {
  expect(error.code).toBe(ErrorCode.APPLICATION_INVALID_INPUT);
  expect(error.options.fields).toEqual([
    { location: "permissions", message: expect.stringMatching(/^at position \d+: \S/) },
  ]);
  const position = Number(/\d+/.exec(error.options.fields?.[0]?.message ?? "")?.[0]);
  expect(position).toBeGreaterThanOrEqual(1);
  expect(position).toBeLessThanOrEqual(text.length + 1);
  if (position <= text.length) expect(text.charAt(position - 1)).toMatch(/^\S$/);
  return position;
}

describe("a permission query", () => {
  const printed = nameSet.chain((names) => fc.tuple(expressionOver(names), fc.subarray(names)));

  it("evaluates like its expression for any set of permissions, with AND binding more tightly", () => {
    fc.assert(
      fc.property(printed, ([expression, names]) => {
        const granted = new Set(names);
        const text = print(expression);
        fc.pre(openings(text) <= 100);
        expect(
          parsePermissionQuery(text)((requested) => granted.has(requested)),
          text,
        ).toBe(evaluate(expression, granted));
      }),
      { numRuns: 1_000 },
    );
  });

  it("evaluates the same with redundant parentheses, any white space and any letter case of AND and OR", () => {
    fc.assert(
      fc.property(printed, fc.infiniteStream(fc.nat(11)), ([expression, names], numbers) => {
        const granted = new Set(names);
        const text = printOddly(expression, (choices) => choices[numbers.next().value % choices.length] ?? "");
        fc.pre(openings(text) <= 100);
        expect(
          parsePermissionQuery(text)((requested) => granted.has(requested)),
          text,
        ).toBe(evaluate(expression, granted));
      }),
      { numRuns: 1_000 },
    );
  });

  it("is parsed, or refused as invalid_input with a position, for any text; nothing else is ever thrown", () => {
    const pieces = fc.constantFrom("(", ")", "AND", "or", "a", "b.c", "a..b", "*", "a.*", "💥", "\0", " ", "  ", "\n");
    const soup = fc.array(pieces, { maxLength: 30 }).map((parts) => parts.join(""));
    const anyCharacters = fc.array(fc.nat(0x10ffff)).map((codePoints) => String.fromCodePoint(...codePoints));
    fc.assert(
      fc.property(fc.oneof(soup, anyCharacters, fc.string()), (text) => {
        const error = errorOf(text);
        if (error) expectNamesPosition(text, error);
      }),
      { numRuns: 1_000 },
    );
  });

  it.each([
    ["", 1],
    ["   ", 4],
    ["a b", 3],
    ["a AND", 6],
    ["AND a", 1],
    ["a AND OR b", 7],
    ["(a", 3],
    ["a)", 2],
    ["()", 2],
    ["a AND (b OR c", 14],
    ["a AND documents*", 7],
    ["a OR **", 6],
    ["a OR *.b", 6],
    ["a OR b..c", 6],
    ["a, b", 1],
    ["a OR é", 6],
  ])("with a syntax error is refused with the position of the error: %j at %i", (text, position) => {
    expect(expectNamesPosition(text, errorOf(text) ?? expect.fail("the query was accepted"))).toBe(position);
  });

  it("may be nested 100 levels deep; deeper is refused, and no depth exhausts the stack", () => {
    const nested = (depth: number) => `${"(".repeat(depth)}a${")".repeat(depth)}`;
    expect(parsePermissionQuery(nested(100))((requested) => requested === "a")).toBe(true);
    for (const depth of [101, 50_000]) {
      expectNamesPosition(nested(depth), errorOf(nested(depth)) ?? expect.fail("the query was accepted"));
      expectNamesPosition("(".repeat(depth), errorOf("(".repeat(depth)) ?? expect.fail("the query was accepted"));
    }
  });

  it("may be long, and is evaluated without exhausting the stack", () => {
    const long = Array.from({ length: 20_000 }, (_, index) => `a${index}`);
    expect(parsePermissionQuery(long.join(" AND "))(() => true)).toBe(true);
    expect(parsePermissionQuery(long.join(" OR "))((requested) => requested === "a19999")).toBe(true);
  });
});

describe("granted permissions cover a requested one", () => {
  const part = fc.constantFrom("a", "b", "ab", "keys", "documents", "read");
  const plain = fc.array(part, { minLength: 1, maxLength: 4 }).map((parts) => parts.join("."));
  const wildcard = plain.map((text) => `${text}.*`);
  const grant = fc.oneof(plain, wildcard, fc.constant("*"));
  const grants = fc.array(grant, { maxLength: 5 });

  it("* covers everything, only * covers *, and an empty list covers nothing", () => {
    fc.assert(
      fc.property(grants, grant, (granted, requested) => {
        expect(covers([...granted, "*"], requested)).toBe(true);
        expect(covers(granted, "*")).toBe(granted.includes("*"));
        expect(covers([], requested)).toBe(false);
      }),
    );
  });

  it("a name covers only itself; a wildcard covers names below its stem, at any depth, and not the stem", () => {
    fc.assert(
      fc.property(plain, plain, part, (stem, below, other) => {
        expect(covers([stem], below)).toBe(stem === below);
        expect(covers([stem], `${stem}.*`)).toBe(false);
        expect(covers([`${stem}.*`], `${stem}.${below}`)).toBe(true);
        expect(covers([`${stem}.*`], `${stem}.${below}.*`)).toBe(true);
        expect(covers([`${stem}.*`], `${stem}.*`)).toBe(true);
        expect(covers([`${stem}.*`], stem)).toBe(false);
        expect(covers([`${stem}.*`], `${stem}${other}.${below}`)).toBe(false);
        expect(covers([`${stem}.${below}.*`], `${stem}.*`)).toBe(false);
      }),
    );
  });

  it("more grants never cover less, and grants that are covered add nothing", () => {
    fc.assert(
      fc.property(grants, grant, grant, (granted, more, requested) => {
        const [fewer, all] = [covers(granted, requested), covers([...granted, more], requested)];
        if (fewer) expect(all).toBe(true);
        if (covers(granted, more)) expect(all).toBe(fewer);
      }),
      { numRuns: 1_000 },
    );
  });
});
