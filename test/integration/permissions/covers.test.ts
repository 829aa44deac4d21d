import fc from "fast-check";
import { afterAll, beforeAll, expect, it } from "vitest";
import { coverageOf, covers } from "../../../src/call/permissions.js";
import { openSchema, type Schema } from "../../support/schema.js";

let schema: Schema;
beforeAll(async () => {
  schema = await openSchema();
});
afterAll(() => schema.close());

const name = fc.constantFrom("keys", "keysx", "apis", "read", "k");
const scope = fc.oneof(
  fc.constant("*"),
  fc.array(name, { minLength: 1, maxLength: 3 }).map((names) => names.join(".")),
  fc.array(name, { minLength: 1, maxLength: 2 }).map((names) => `${names.join(".")}.*`),
);

it("scopes cover the same in the database as in the service", async () => {
  const cases = fc.sample(fc.tuple(fc.array(scope, { maxLength: 4 }), scope), 2_000);
  const rows = await schema.sql<{ covered: boolean }[]>`
    select covers(array(select json_array_elements_text(one -> 0)), one ->> 1) as covered
    from json_array_elements(${JSON.stringify(cases)}::text::json) with ordinality as cases (one, position)
    order by position`;
  const expected = cases.map(([granted, required]) => covers(granted, required));
  expect(rows.map(({ covered }) => covered)).toEqual(expected);
  // Of many, in which the service searches in another way.
  const others = Array.from({ length: 100 }, (_, index) => `others.number_${index}`);
  expect(cases.map(([granted, required]) => coverageOf([...others, ...granted])(required))).toEqual(expected);
  expect(new Set(expected)).toEqual(new Set([true, false]));
});
