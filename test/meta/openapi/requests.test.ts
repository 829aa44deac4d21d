import { FieldMaskSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { CallRequest } from "../../support/clients/protocol-client.js";
import { type OperationName, operationOf } from "../../support/operations.js";
import { type Place, placesIn, withMessage, withValue } from "../../support/places.js";
import type { FieldSchema } from "./reference.js";
import { names, openStage } from "./stage.js";

const stage = openStage();

/** The operations that have a body. */
const posted = names.filter((name) => operationOf(name).routes[0][0] === "POST");

const values = fc.oneof(
  fc.constantFrom<unknown>(null, true, 0, -1, 1.5, 101, 2 ** 31, 1e15, 31_536_000_001, [], {}, "", "x", " "),
  fc.constantFrom("a".repeat(255), "🗝".repeat(255), "🗝".repeat(256), "a\nb", "a\u0085b", "seventeen_letters", "keys.*"),
  fc.constantFrom<unknown>("OWNER_REQUEST", "DISABLED_REASON_OWNER_REQUEST", "UNSPECIFIED", ["a", "a"], ["a b"], [1]),
  fc.array(fc.stringMatching(/^[a-z*.]{1,8}$/), { maxLength: 4 }),
  fc.integer(),
  // Text that cannot be stored is refused everywhere, which no schema expresses.
  fc.string({ unit: "binary", maxLength: 20 }).filter((text) => text.isWellFormed() && !text.includes("\0")),
);

/** The fields of an operation's request over HTTP, at any depth. There is no update mask. */
function fieldsOf(name: OperationName): Place[] {
  return placesIn(operationOf(name).rpc.input).filter(
    ({ field }) => field.message?.typeName !== FieldMaskSchema.typeName,
  );
}

/** Valid requests, changed in up to four fields. */
const requests = fc.constantFrom(...posted).chain((name) => {
  const names = operationOf(name).rpc.input.fields.map(({ jsonName }) => jsonName);
  const changes = fc.array(fc.tuple(fc.constantFrom(...fieldsOf(name)), values), { maxLength: 3 });
  const dropped = fc.subarray(names, { maxLength: 1 });
  const added = fc.oneof({ arbitrary: fc.constant({}), weight: 9 }, fc.record({ surprise: values }));
  return fc.record({ changes, dropped, added }).map(({ changes, dropped, added }) => {
    const changed = changes.reduce<unknown>(
      (request, [place, value]) =>
        withMessage(request as CallRequest, place, (message) => ({ ...message, [place.field.jsonName]: value })),
      operationOf(name).wellFormed,
    );
    const kept = Object.entries({ ...(changed as CallRequest), ...added }).filter(
      ([field]) => !dropped.includes(field),
    );
    return { name, request: Object.fromEntries(kept) };
  });
});

/**
 * Rules that no schema expresses: that a time is in the future, that the service issued a cursor, the permission
 * syntax, rules about several fields of a message, and that the messages of a list differ in a field.
 */
const beyondSchema =
  /^(expires|cursor|verifyKey permissions|credits|remaining|refill|period|updateCredits body|(ratelimits|keys|body)(\[\d+\])?)$/;

/** Sends a request; expects the service to accept or refuse it as the schema does. */
async function expectSameResult(name: OperationName, request: CallRequest): Promise<"accepted" | "refused"> {
  const [route] = operationOf(name).routes;
  const { code, badFields } = await stage.call(route, stage.credentialFor(name), request);
  const sent = `${name} ${JSON.stringify(request)}`;
  if (!stage.reference.accepts(route, request)) {
    expect(code, sent).toBe("application/invalid_input");
    return "refused";
  }
  const unexplained = badFields
    .map((location) => location.replace(/.*\./, ""))
    .filter((field) => !beyondSchema.test(field) && !beyondSchema.test(`${name} ${field}`));
  expect(unexplained, sent).toEqual([]);
  return "accepted";
}

test.each(posted)("each limit of %s is as documented", async (name) => {
  const { routes, wellFormed } = operationOf(name);
  const example = stage.reference.example(routes[0]);
  for (const place of fieldsOf(name)) {
    const names = [...place.outer, place.field].map(({ jsonName }) => jsonName);
    // Fields of a message are changed in the message of the example, which has all required fields.
    const [outermost] = place.outer;
    const base = outermost ? { ...wellFormed, [outermost.jsonName]: example[outermost.jsonName] } : wellFormed;
    const edges = edgesOf(stage.reference.field(routes[0], names));
    await Promise.all(edges.map((edge) => expectSameResult(name, withValue(base, place, edge))));
  }
});

/** Values on either side of each limit, and some of every other type. */
function edgesOf({ maxLength = 16, minimum = 0, maximum = 0, maxItems = 0, items = {} }: FieldSchema): unknown[] {
  const long = "x".repeat(maxLength);
  const longItem = "x".repeat(items.maxLength ?? 16);
  const list = Array.from({ length: maxItems }, (_, index) => `a.${index}`);
  return [
    ...[null, true, {}, "", long, `${long}x`, "a b", "a\nb", "OWNER_REQUEST", "UNSPECIFIED"],
    ...[1.5, minimum, minimum - 1, maximum, maximum + 1],
    ...[[], list, [...list, "a"], ["a", "a"], [longItem], [`${longItem}x`], ["a b"], [1], [null], [{}]],
  ];
}

test("the service refuses every request that the schema refuses, and others only by rules that no schema expresses", async () => {
  const seen = { accepted: 0, refused: 0 };
  await fc.assert(
    fc.asyncProperty(requests, async ({ name, request }) => {
      seen[await expectSameResult(name, request)] += 1;
    }),
    { numRuns: 200 },
  );
  expect(seen.accepted).toBeGreaterThan(20);
  expect(seen.refused).toBeGreaterThan(20);
});

test.each(posted)("the example request of %s is valid", async (name) => {
  const [route] = operationOf(name).routes;
  const { code } = await stage.call(route, stage.credentialFor(name), stage.reference.example(route));
  expect(code).not.toBe("application/invalid_input");
});

test.each(posted)("the body of %s is required if and only if an empty one is refused", async (name) => {
  const [route] = operationOf(name).routes;
  const { status } = await stage.call(route, stage.credentialFor(name), {});
  expect(stage.reference.operation(route).requestBody?.required).toBe(status === 400);
});
