import { type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { createValidator } from "@bufbuild/protovalidate";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { matchesRule } from "../../../src/rpc/rule-pattern.js";
import { operations } from "../../robustness/fuzz/operations.js";
import { rulesOf } from "../../robustness/fuzz/valid-requests.js";
import { toRequestMessage } from "../../support/clients/messages.js";
import { type Place, placesIn, withValue } from "../../support/places.js";

const withRe2 = createValidator();
const withRegExp = createValidator({ regexMatch: matchesRule });

/** The texts of a request that are matched against a regular expression. */
function matchedIn(schema: DescMessage): Place[] {
  return placesIn(schema).filter(({ field }) => {
    if (field.scalar !== ScalarType.STRING) return false;
    const rules = rulesOf(field);
    const item = rules?.type.case === "repeated" ? rules.type.value.items : rules;
    return (
      item !== undefined && (item.cel.length > 0 || (item.type.case === "string" && item.type.value.pattern !== ""))
    );
  });
}

const characters = [..."aZ09_-.:*$^ é🗝", "\0", "\n", "\r", "\x1f", " ", "~", "\x7f", "\x80", "\x9f", "\xa0", "\u2028"];
const texts = fc.oneof(
  fc.string({ unit: fc.constantFrom(...characters), minLength: 1, maxLength: 8 }),
  fc.constantFrom(...characters),
);

const matched = operations.flatMap(({ name, rpc }) =>
  matchedIn(rpc.input).map((place) => [name, place.location, rpc.input, place] as const),
);

describe("the regular expressions of rules mean the same as in RE2:", () => {
  it.each(matched)("%s, %s", (_name, _location, schema, place) => {
    const violationsOf = (validator: typeof withRe2, text: string) => {
      const value = place.field.fieldKind === "list" ? [text] : text;
      const request = toRequestMessage(schema, withValue({}, place, value));
      const { kind, error, violations } = validator.validate(schema, request);
      if (kind === "error") throw error;
      return violations?.map(({ ruleId }) => ruleId);
    };
    fc.assert(
      fc.property(texts, (text) => {
        expect(violationsOf(withRegExp, text)).toEqual(violationsOf(withRe2, text));
      }),
      { numRuns: 100, seed: 4242, examples: characters.map((character) => [character]) },
    );
  });
});

it("some requests have such rules", () => {
  expect(matched.length).toBeGreaterThan(5);
});
