import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, it } from "vitest";
import type { ApiError } from "../../../src/errors.js";
import { compileReader, compileWriter, type ReadMessage } from "../../../src/http/json/codec.js";
import { ImportThingsRequestSchema, LimitSchema, UpdateThingRequestSchema } from "../../support/things-service.js";

const readUpdate = compileReader(UpdateThingRequestSchema);
const readImport = compileReader(ImportThingsRequestSchema);

/** The errors that a reader reports, as location and message. */
function errorsOf(read: ReadMessage, json: unknown): string[] {
  try {
    read(json);
    return [];
  } catch (error) {
    return (error as ApiError).options.fields?.map(({ location, message }) => `${location} ${message}`) ?? [];
  }
}

function update(members: object) {
  return create(UpdateThingRequestSchema, members as MessageInitShape<typeof UpdateThingRequestSchema>);
}

describe("messages in a request are read", () => {
  it("with all their members", () => {
    const until = 4_102_444_800_000;
    const limit = { name: "requests", limit: 5, autoApply: true, tags: ["a"], meta: { a: [1] }, until };
    const json = {
      thingId: "thing_1",
      credits: { remaining: 5, refill: { interval: "monthly", amount: 10, refillDay: 1 } },
      limits: [limit, { name: "tokens", limit: 1 }],
    };
    expect(readUpdate(json)).toEqual(
      update({
        thingId: "thing_1",
        credits: { remaining: 5n, refill: { interval: "monthly", amount: 10n, refillDay: 1 } },
        limits: [
          { ...limit, limit: 5n, until: timestampFromMs(until) },
          { name: "tokens", limit: 1n },
        ],
        updateMask: { paths: ["credits.remaining", "credits.refill", "limits"] },
      }),
    );
  });

  it("and null means that a member is omitted", () => {
    const json = { things: [{ hash: "a", limits: null, meta: null }] };
    expect(readImport(json)).toEqual(readImport({ things: [{ hash: "a" }] }));
  });

  it("and written again as they were", () => {
    const text = 'quote " backslash \\ newline \n NUL \0 é 😀 lone surrogate \ud800';
    const json = {
      name: text,
      limit: 9_007_199_254_740_991,
      autoApply: false,
      tags: ["a", text],
      meta: { [text]: text },
    };
    const messages = [json, { ...json, tags: [], meta: {}, until: 5 }].map((limit) => {
      return (readUpdate({ limits: [limit] }) as unknown as { limits: never[] }).limits[0] as never;
    });
    const write = compileWriter(LimitSchema);
    expect(messages.map((message) => JSON.parse(write(message)))).toEqual([
      json,
      { ...json, tags: [], meta: {}, until: 5 },
    ]);
  });
});

describe("errors in messages have their full path:", () => {
  const known = "is not a known field; the known fields are";

  // biome-ignore format: one line each
  it.each<[unknown, string[]]>([
    [{ credits: 5 }, ["credits must be a JSON object"]],
    [{ credits: [] }, ["credits must be a JSON object"]],
    [{ credits: { remaining: "5" } }, ["credits.remaining must be an integer"]],
    [{ credits: { refill: "daily" } }, ["credits.refill must be a JSON object"]],
    [{ credits: { refill: { amount: 1.5 } } }, ["credits.refill.amount must be an integer"]],
    [{ credits: { left: 1 } }, [`credits.left ${known} remaining, refill`]],
    [{ credits: { refill: { day: null } } }, [`credits.refill.day ${known} interval, amount, refillDay`]],
    [{ limits: {} }, ["limits must be an array"]],
    [{ limits: [null] }, ["limits[0] must be a JSON object"]],
    [{ limits: [{}, [{}], 1] }, ["limits[1] must be a JSON object", "limits[2] must be a JSON object"]],
    [{ limits: [{}, { limit: "1", name: 1 }] }, ["limits[1].limit must be an integer", "limits[1].name must be a string"]],
    [{ limits: [{ tags: ["a", 1] }] }, ["limits[0].tags[1] must be a string"]],
    [{ limits: [{ tags: "a" }] }, ["limits[0].tags must be an array"]],
    [{ limits: [{ tags: ["a", "b", "c", "d"] }] }, ["limits[0].tags must contain no more than 3 item(s)"]],
    [{ limits: [{ until: "2099-01-01" }] }, ["limits[0].until must be a time in Unix milliseconds, an integer"]],
    [{ limits: [{ meta: [] }] }, ["limits[0].meta must be a JSON object"]],
    [{ limits: Array(6).fill({}) }, ["limits must contain no more than 5 item(s)"]],
    [JSON.parse(`{"credits":{"__proto__":{"remaining":1}}}`), [`credits.__proto__ ${known} remaining, refill`]],
    [{ credits: { constructor: 1 } }, [`credits.constructor ${known} remaining, refill`]],
  ])("%j", (json, errors) => {
    expect(errorsOf(readUpdate, json)).toEqual(errors);
  });

  it("at most ten of them are listed", () => {
    const things = Array.from({ length: 100 }, () => ({ hash: 1, permissions: [1, 2], surprise: 1 }));
    expect(errorsOf(readImport, { things })).toHaveLength(10);
    expect(() => readImport({ things })).toThrow(/things\[0\]\.hash .* and more than these ten\.$/);
  });
});

describe("the members of an update form its mask:", () => {
  it.each<[object, string[]]>([
    [{ name: null }, ["name"]],
    [{ credits: null }, ["credits"]],
    [{ credits: { remaining: null } }, ["credits.remaining"]],
    [{ credits: { remaining: 5 } }, ["credits.remaining"]],
    [
      { credits: { refill: { interval: "daily", amount: 1 }, remaining: null } },
      ["credits.remaining", "credits.refill"],
    ],
    [{ credits: {} }, []],
    [{ limits: [] }, ["limits"]],
    [{ limits: [{ name: "a", limit: 1 }], name: "b" }, ["name", "limits"]],
    [{ thingId: "a" }, []],
  ])("%j", (json, paths) => {
    expect(readUpdate(json)).toMatchObject({ updateMask: { paths } });
  });

  it("a member that is null is unset", () => {
    expect(readUpdate({ credits: { remaining: null } })).toEqual(
      update({ credits: {}, updateMask: { paths: ["credits.remaining"] } }),
    );
    expect(readUpdate({ credits: null })).toEqual(update({ updateMask: { paths: ["credits"] } }));
  });
});
