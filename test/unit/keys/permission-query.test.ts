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
const pool = fc.uniqueArray(name, { minLength: 1, maxLength: 5 });

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

function holdsOf(expression: Expression, held: ReadonlySet<string>): boolean {
  if (typeof expression === "string") return held.has(expression);
  const { operator, parts } = expression;
  return operator === "AND" ? parts.every((part) => holdsOf(part, held)) : parts.some((part) => holdsOf(part, held));
}

/** Writes an expression with only the parentheses that it needs. */
function print(expression: Expression, within: "AND" | "OR" = "OR"): string {
  if (typeof expression === "string") return expression;
  const { operator, parts } = expression;
  if (parts.length === 1 && parts[0] !== undefined) return print(parts[0], within);
  const text = parts.map((part) => print(part, operator)).join(` ${operator} `);
  return operator === "OR" && within === "AND" ? `(${text})` : text;
}

/** Writes an expression with parentheses around every part, and odd spaces and letter case. */
function printOddly(expression: Expression, odd: (choices: readonly string[]) => string): string {
  const space = () => odd(["", " ", "\t", "\n  "]);
  if (typeof expression === "string") return `(${space()}${expression}${space()})`;
  const { operator, parts } = expression;
  const word = () => odd([operator, operator.toLowerCase(), operator.charAt(0) + operator.slice(1).toLowerCase()]);
  return `(${parts.map((part) => printOddly(part, odd)).reduce((all, part) => `${all}${space()}${word()}${space()}${part}`)})`;
}

const openings = (text: string) => text.split("(").length - 1;

/** The failure that a query is refused with; undefined if it is taken. */
function refusalOf(text: string): ApiError | undefined {
  try {
    parsePermissionQuery(text);
    return undefined;
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
}

/** Holds a refusal against its form: invalid input of `permissions` that names the place of a token, or the end. */
function expectNamesPosition(text: string, refusal: ApiError): number {
  expect(refusal.code).toBe(ErrorCode.APPLICATION_INVALID_INPUT);
  expect(refusal.more.fields).toEqual([
    { location: "permissions", message: expect.stringMatching(/^at position \d+: \S/) },
  ]);
  const position = Number(/\d+/.exec(refusal.more.fields?.[0]?.message ?? "")?.[0]);
  expect(position).toBeGreaterThanOrEqual(1);
  expect(position).toBeLessThanOrEqual(text.length + 1);
  if (position <= text.length) expect(text.charAt(position - 1)).toMatch(/^\S$/);
  return position;
}

describe("a permission query", () => {
  const printed = pool.chain((names) => fc.tuple(expressionOver(names), fc.subarray(names)));

  it("means what its expression means, however it is held, with AND binding more tightly", () => {
    fc.assert(
      fc.property(printed, ([expression, names]) => {
        const held = new Set(names);
        const text = print(expression);
        fc.pre(openings(text) <= 100);
        expect(
          parsePermissionQuery(text)((wanted) => held.has(wanted)),
          text,
        ).toBe(holdsOf(expression, held));
      }),
      { numRuns: 1_000 },
    );
  });

  it("means the same with needless parentheses, any white space and any letter case of AND and OR", () => {
    fc.assert(
      fc.property(printed, fc.infiniteStream(fc.nat(11)), ([expression, names], numbers) => {
        const held = new Set(names);
        const text = printOddly(expression, (choices) => choices[numbers.next().value % choices.length] ?? "");
        fc.pre(openings(text) <= 100);
        expect(
          parsePermissionQuery(text)((wanted) => held.has(wanted)),
          text,
        ).toBe(holdsOf(expression, held));
      }),
      { numRuns: 1_000 },
    );
  });

  it("of any text is taken, or refused as invalid input with a position; nothing else is ever thrown", () => {
    const pieces = fc.constantFrom("(", ")", "AND", "or", "a", "b.c", "a..b", "*", "a.*", "💥", "\0", " ", "  ", "\n");
    const soup = fc.array(pieces, { maxLength: 30 }).map((parts) => parts.join(""));
    fc.assert(
      fc.property(fc.oneof(soup, fc.string({ unit: "binary" }), fc.string()), (text) => {
        const refusal = refusalOf(text);
        if (refusal) expectNamesPosition(text, refusal);
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
    ["a AND documents.*", 7],
    ["a OR *", 6],
    ["a OR b..c", 6],
    ["a, b", 1],
    ["a OR é", 6],
  ])("that is wrong is refused at the place where it goes wrong: %j at %i", (text, position) => {
    expect(expectNamesPosition(text, refusalOf(text) ?? expect.fail("it was taken"))).toBe(position);
  });

  it("may be nested a hundred deep; deeper is refused, and no depth exhausts the stack", () => {
    const nested = (depth: number) => `${"(".repeat(depth)}a${")".repeat(depth)}`;
    expect(parsePermissionQuery(nested(100))((wanted) => wanted === "a")).toBe(true);
    for (const depth of [101, 50_000]) {
      expectNamesPosition(nested(depth), refusalOf(nested(depth)) ?? expect.fail("it was taken"));
      expectNamesPosition("(".repeat(depth), refusalOf("(".repeat(depth)) ?? expect.fail("it was taken"));
    }
  });

  it("may be long, and is evaluated without exhausting the stack", () => {
    const long = Array.from({ length: 20_000 }, (_, index) => `a${index}`);
    expect(parsePermissionQuery(long.join(" AND "))(() => true)).toBe(true);
    expect(parsePermissionQuery(long.join(" OR "))((wanted) => wanted === "a19999")).toBe(true);
  });
});

describe("granted permissions cover a wanted one", () => {
  const part = fc.constantFrom("a", "b", "ab", "keys", "documents", "read");
  const plain = fc.array(part, { minLength: 1, maxLength: 4 }).map((parts) => parts.join("."));
  const wildcard = plain.map((text) => `${text}.*`);
  const grant = fc.oneof(plain, wildcard, fc.constant("*"));
  const grants = fc.array(grant, { maxLength: 5 });

  it("* covers everything, nothing but * covers *, and no grant covers nothing", () => {
    fc.assert(
      fc.property(grants, grant, (granted, wanted) => {
        expect(covers([...granted, "*"], wanted)).toBe(true);
        expect(covers(granted, "*")).toBe(granted.includes("*"));
        expect(covers([], wanted)).toBe(false);
      }),
    );
  });

  it("a name covers itself alone; a wildcard covers what is below it, at any depth, and not its own stem", () => {
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
      fc.property(grants, grant, grant, (granted, more, wanted) => {
        const [fewer, all] = [covers(granted, wanted), covers([...granted, more], wanted)];
        if (fewer) expect(all).toBe(true);
        if (covers(granted, more)) expect(all).toBe(fewer);
      }),
      { numRuns: 1_000 },
    );
  });
});
