import { describe, expect, it } from "vitest";
import { createOverrideSet } from "../../../src/limiter/override-set.js";

/** The identifier of the override that applies, of those with these identifiers, the oldest first. */
function applied(identifiers: readonly string[], identifier: string): string | undefined {
  const overrides = identifiers.map((one, index) => ({
    overrideId: `${index}`,
    identifier: one,
    limit: 1,
    duration: 1,
  }));
  return createOverrideSet(overrides).find(identifier)?.identifier;
}

describe("an override matches", () => {
  it.each([
    ["user_1", "user_1", true],
    ["user_1", "user_12", false],
    ["User_1", "user_1", false],
    ["*", "anything", true],
    ["*", "", true],
    ["**", "anything", true],
    ["premium_*", "premium_1", true],
    ["premium_*", "premium_", true],
    ["premium_*", "premium", false],
    ["*@acme.com", "a@acme.com", true],
    ["*@acme.com", "a@acme.com.evil", false],
    ["a*b*c", "a-b-b-c", true],
    ["a*b*c", "a-c-b", false],
    ["a*a", "a", false],
    ["a*a", "aa", true],
    ["ab*ba", "aba", false],
    ["*ab*ab*", "abab", true],
    ["*ab*ab*", "aab", false],
    ["a.c", "abc", false],
    ["[a-z]*", "b", false],
    ["😀*", "😀x", true],
  ])("%s: %s, %s", (pattern, identifier, expected) => {
    expect(applied([pattern], identifier)).toBe(expected ? pattern : undefined);
  });
});

describe("of several overrides that match", () => {
  it("one without * applies first", () => {
    expect(applied(["premium_*", "*", "premium_1"], "premium_1")).toBe("premium_1");
  });

  it("otherwise the one with the most other characters applies", () => {
    expect(applied(["*", "p*", "*m_1", "premium_*"], "premium_1")).toBe("premium_*");
  });

  it("otherwise the older one applies", () => {
    expect(applied(["*r_1", "us_*", "use*"], "user_1")).toBe("*r_1");
    expect(applied(["use*", "*r_1"], "user_1")).toBe("use*");
  });

  it("one with exactly the text of the identifier applies, although it has a *", () => {
    expect(applied(["a*longer", "a*"], "a*")).toBe("a*");
  });
});

it("patterns that make regular expressions backtrack are matched in linear time", () => {
  const pattern = `${"*a".repeat(127)}*b`;
  // A matcher that backtracks would not finish the first of these within the time limit of a test.
  for (let times = 0; times < 1_000; times++) expect(applied([pattern], "a".repeat(255))).toBeUndefined();
});
