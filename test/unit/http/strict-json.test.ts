import type { DescMessage } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { CreateKeyRequestSchema } from "../../../gen/latchkey/v1/keys_service_pb.js";
import type { ApiError } from "../../../src/errors.js";
import { shapeOfField, shapeOfMessage } from "../../../src/http/json/shape.js";
import { parseStrictJson } from "../../../src/http/json/strict-json.js";
import {
  CheckLimitsRequestSchema,
  ImportThingsRequestSchema,
  UpdateThingRequestSchema,
} from "../../support/things-service.js";

/** A body with the same meaning that is long enough to be scanned before it is parsed. */
const padded = (text: string) => `${text}${" ".repeat(1_100)}`;

function errorIn(parse: () => unknown): string | undefined {
  try {
    parse();
    return undefined;
  } catch (error) {
    const [field] = (error as ApiError).options.fields ?? [];
    return `${field?.location} ${field?.message}`;
  }
}

/** The error of a body that is a message. */
function errorOf(schema: DescMessage, text: string): string | undefined {
  return errorIn(() => parseStrictJson(Buffer.from(text), shapeOfMessage(schema)));
}

/** The error of a body that is the value of the field `limits`. */
function errorOfList(text: string): string | undefined {
  const [field] = CheckLimitsRequestSchema.fields;
  const shape = field && shapeOfField(field);
  if (shape === undefined) return expect.fail("limits is not a list of messages");
  return errorIn(() => parseStrictJson(Buffer.from(text), shape, "limits"));
}

const repeated = (count: number, part: string) => Array.from({ length: count }, () => part).join();
const numbered = (count: number, part: (index: number) => string) =>
  Array.from({ length: count }, (_, n) => part(n)).join();
const inexact = "a number that cannot be represented exactly: send it as a string";

describe.each([
  ["small", (text: string) => text],
  ["large", padded],
])("a duplicate or an inexact number in a %s body is found in every message:", (_size, sized) => {
  // biome-ignore format: one line each
  it.each<[string, string]>([
    [`{"name":"a","name":"b"}`, "name is given more than once"],
    [`{"credits":{"remaining":1,"remaining":2}}`, "credits.remaining is given more than once"],
    [`{"credits":{"refill":{"amount":1,"amoun\\u0074":1}}}`, "credits.refill.amount is given more than once"],
    [`{"limits":[{"name":"a"},{"name":"a","limit":1,"name":"b"}]}`, "limits[1].name is given more than once"],
    [`{"limits":[{},{"meta":{"a":1,"a":1}}]}`, "limits[1].meta has a member that is given more than once"],
    [`{"limits":[{"meta":{"a":[{"b":12345678901234567890}]}}]}`, `limits[0].meta has ${inexact}`],
    [`{"meta":{"a":1,"a":1}}`, "meta has a member that is given more than once"],
    [`{"limits":[{"surprise":{"a":1,"a":1}}]}`, "limits[0].surprise has a member that is given more than once"],
    [`{"":1,"":1}`, `"" is given more than once`],
  ])("%s", (text, error) => {
    expect(errorOf(UpdateThingRequestSchema, sized(text))).toBe(error);
  });

  it.each([
    `{"credits":{"remaining":1},"limits":[{"name":"a"},{"name":"a","limit":1}]}`,
    `{"limits":[{},"a","a",1,[{}]],"credits":[{"a":1},{"a":1}],"name":{"a":1}}`,
    `{"meta":{"a":1,"b":{"a":1}},"limits":[{"meta":{"a":1}},{"meta":{"a":1}}]}`,
    `{"name":"a:b:c","limits":[]}`,
    `{}`,
    `[{"a":1},{"a":1}]`,
    `1`,
  ])("and there is none in %s", (text) => {
    expect(errorOf(UpdateThingRequestSchema, sized(text))).toBeUndefined();
  });

  it("and none in a body that is a list", () => {
    expect(errorOfList(sized(`[{"name":"a","limit":1},{"name":"a","limit":1}]`))).toBeUndefined();
    expect(errorOfList(sized(`[{"name":"a"},{"name":"a","name":"a"}]`))).toBe("limits[1].name is given more than once");
    expect(errorOfList(sized(`[{"meta":{"a":[12345678901234567890]}}]`))).toBe(`limits[0].meta has ${inexact}`);
  });
});

describe("a hostile body is refused before it is parsed:", () => {
  const deep = `${"[".repeat(33)}${"]".repeat(33)}`;

  // biome-ignore format: one line each
  it.each<[string, string, string]>([
    ["a list of too many messages", `{"things":[${repeated(40_000, "{}")}]}`, "things must contain no more than 100 item(s)"],
    ["a list of too many numbers", `{"things":[${repeated(40_000, "1")}]}`, "things must contain no more than 100 item(s)"],
    ["a list in a message of a list", `{"things":[{},{"limits":[${repeated(40_000, "{}")}]}]}`, "things[1].limits must contain no more than 50 item(s)"],
    ["many members", `{"things":[{},{${numbered(10_000, (n) => `"x${n}":1`)}}]}`, "things[1] must not have more than 100 members"],
    ["many members of the request", `{${numbered(10_000, (n) => `"x${n}":1`)}}`, "body must not have more than 100 members"],
    ["a large value", `{"things":[{"permissions":[${repeated(40_000, "1")}]}]}`, "things[0].permissions must not be larger than 16 KiB as JSON"],
    ["a large value in place of a message", `{"things":{"limits":[${repeated(40_000, "{}")}]}}`, "things must not be larger than 16 KiB as JSON"],
    ["a large unknown member", `{"things":[{"x":[${repeated(40_000, "{}")}]}]}`, "things[0].x must not be larger than 16 KiB as JSON"],
    ["a deep value", padded(`{"things":[{"meta":{"a":${deep}}}]}`), "things[0].meta must not nest deeper than 32 levels"],
    ["a deep value in place of a message", padded(`{"things":[[${deep}]]}`), "things[0] must not nest deeper than 32 levels"],
    ["many messages, each within its limits", `{"things":[${repeated(100, `{"limits":[${repeated(50, `{"x":[],"y":[]}`)}]}`)}]}`, "body must not have more than 16384 values"],
    ["many objects, each within its limits", `{"things":[${repeated(20, `{"meta":{"a":[${repeated(1_000, "{}")}]}}`)}]}`, "body must not have more than 16384 values"],
    ["a list in place of the request", `[${repeated(40_000, "{}")}]`, "body must not be larger than 16 KiB as JSON"],
  ])("%s", (_what, text, error) => {
    expect(errorOf(ImportThingsRequestSchema, text)).toBe(error);
  });

  it("several large values of a flat request", () => {
    const lists = numbered(8, (n) => `"x${n}":[${repeated(5_000, "{}")}]`);
    expect(errorOf(CreateKeyRequestSchema, `{${lists}}`)).toBe("body must not have more than 16384 values");
  });

  it("a body that is a list", () => {
    expect(errorOfList(`[${repeated(40_000, "{}")}]`)).toBe("limits must contain no more than 50 item(s)");
    expect(errorOfList(`{"a":[${repeated(40_000, "{}")}]}`)).toBe("limits must not be larger than 16 KiB as JSON");
    expect(errorOfList(padded(`[${deep}]`))).toBe("limits[0] must not nest deeper than 32 levels");
  });

  it("text that is not JSON", () => {
    for (const text of [
      "}".repeat(2_000),
      "[]{".repeat(40_000),
      `{"things":[]${"{".repeat(40_000)}`,
      `"`.repeat(2_001),
    ]) {
      expect(errorOf(ImportThingsRequestSchema, text)).toMatch(/^body |^things /);
    }
  });
});

describe("a large valid body is accepted:", () => {
  it("a hundred messages with lists and objects", () => {
    const permissions = numbered(60, (n) => `"documents.${n}"`);
    const limits = repeated(5, `{"name":"a","limit":1,"tags":["a","b"],"meta":{"a":{"b":1}}}`);
    const text = `{"things":[${repeated(100, `{"hash":"a","permissions":[${permissions}],"limits":[${limits}]}`)}]}`;
    expect(text.length).toBeGreaterThan(100_000);
    expect(errorOf(ImportThingsRequestSchema, text)).toBeUndefined();
  });

  it("objects of 16 KiB, at the end of any number of messages", () => {
    const meta = `{"a":"${"x".repeat(16 * 1024 - `{"a":""}`.length)}"}`;
    const text = `{"things":[{"meta":${meta}},{"limits":[{"meta":${meta}}]}]}`;
    expect(errorOf(ImportThingsRequestSchema, text)).toBeUndefined();
    expect(errorOfList(`[{"meta":${meta}},{"meta":${meta}}]`)).toBeUndefined();
  });

  it("numbers that are longer than those of the response", () => {
    expect(errorOf(UpdateThingRequestSchema, `{"meta":{"v":[${repeated(4_200, "0.000")}]}}`)).toBeUndefined();
  });

  it("an object of 16 KiB with as many values as possible", () => {
    const meta = `{"a":[${repeated(5_458, "[]")}]}`;
    expect(errorOf(UpdateThingRequestSchema, `{"limits":[{"meta":${meta}}]}`)).toBeUndefined();
  });
});
