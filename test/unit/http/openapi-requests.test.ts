import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, it } from "vitest";
import { describeApi } from "../../../scripts/openapi/document.js";
import { compileFieldReader, compileReader } from "../../../src/http/json/codec.js";
import { createValidate } from "../../../src/rpc/validate.js";
import { CheckLimitsRequestSchema, ThingsService, UpdateThingRequestSchema } from "../../support/things-service.js";

type Schema = Record<string, unknown>;

interface Document {
  readonly paths: Record<
    string,
    { post: { requestBody: { required: boolean; content: { "application/json": { schema: Schema } } } } }
  >;
  readonly components: { readonly schemas: Record<string, Schema> };
}

// As the document is written: without undefined members.
const document = JSON.parse(JSON.stringify(describeApi([ThingsService]))) as Document;
const { schemas } = document.components;

const bodyOf = (path: string) => {
  const body = document.paths[path]?.post.requestBody;
  return { required: body?.required, schema: body?.content["application/json"].schema };
};

describe("a message of a request is a component of the OpenAPI document", () => {
  it("that refuses unknown members, and has the rules of its fields", () => {
    expect(schemas["RefillInput"]).toMatchObject({
      type: "object",
      additionalProperties: false,
      required: ["interval", "amount"],
      properties: {
        interval: { type: "string", enum: ["daily", "monthly"] },
        amount: { type: "integer", minimum: 1, maximum: 1000 },
        refillDay: { type: ["integer", "null"], minimum: 1, maximum: 31 },
      },
    });
    expect(schemas["LimitInput"]).toMatchObject({
      additionalProperties: false,
      required: ["name", "limit"],
      properties: {
        limit: { type: "integer", exclusiveMinimum: 0, maximum: 1_000_000 },
        tags: { type: ["array", "null"], maxItems: 3, items: { type: "string", minLength: 1, maxLength: 10 } },
      },
    });
  });

  it("with another name than the same message in a response", () => {
    expect(schemas["Limit"]).toMatchObject({ required: ["name", "limit", "tags"] });
    expect(schemas["Limit"]).not.toHaveProperty("additionalProperties");
    expect(schemas["ImportedThing"]).toMatchObject({ additionalProperties: false, required: ["hash"] });
  });

  it("to which the request refers", () => {
    expect(schemas["UpdateThingRequest"]).toMatchObject({
      properties: {
        credits: { anyOf: [{ $ref: "#/components/schemas/CreditsInput" }, { type: "null" }] },
        limits: { type: ["array", "null"], maxItems: 5, items: { $ref: "#/components/schemas/LimitInput" } },
      },
    });
    expect(schemas["UpdateThingRequest"]?.["properties"]).not.toHaveProperty("updateMask");
    expect(schemas["ImportThingsRequest"]).toMatchObject({ required: ["things"] });
  });

  it("a body that is the value of one field has the schema of that field", () => {
    expect(bodyOf("/v2/things.checkLimits")).toMatchObject({
      required: true,
      schema: {
        type: "array",
        minItems: 1,
        maxItems: 50,
        items: { $ref: "#/components/schemas/LimitInput" },
        examples: [[{ name: "build server", limit: 10 }]],
      },
    });
    expect(bodyOf("/v2/things.updateThing")).toMatchObject({
      required: true,
      schema: { $ref: "#/components/schemas/UpdateThingRequest" },
    });
  });
});

describe("the schema accepts the requests that the service accepts, and no others:", () => {
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  ajv.addSchema(document, "openapi");
  const validate = createValidate([UpdateThingRequestSchema, CheckLimitsRequestSchema]);
  const limitsField = CheckLimitsRequestSchema.fields[0];
  if (limitsField === undefined) throw new Error("there is no field limits");
  const readers = {
    updateThing: compileReader(UpdateThingRequestSchema),
    checkLimits: compileFieldReader(limitsField),
  };

  function isAccepted(name: keyof typeof readers, json: unknown): boolean {
    const schema = name === "updateThing" ? UpdateThingRequestSchema : CheckLimitsRequestSchema;
    try {
      const message = readers[name](json);
      validate.form(schema, message);
      validate.rules(schema, message);
      return true;
    } catch {
      return false;
    }
  }

  const limit = { name: "a", limit: 1 };
  const thingId = "a";
  // biome-ignore format: one line each
  const requests: [keyof typeof readers, unknown, boolean][] = [
    ["updateThing", { thingId }, true],
    ["updateThing", { thingId, credits: null, limits: null, meta: null, name: null }, true],
    ["updateThing", { thingId, credits: {} }, true],
    ["updateThing", { thingId, credits: { remaining: null, refill: null } }, true],
    ["updateThing", { thingId, credits: { remaining: 0, refill: { interval: "daily", amount: 1 } } }, true],
    ["updateThing", { thingId, credits: { refill: {} } }, false],
    ["updateThing", { thingId, credits: { refill: { interval: "daily" } } }, false],
    ["updateThing", { thingId, credits: { refill: { interval: "daily", amount: null } } }, false],
    ["updateThing", { thingId, credits: { refill: { interval: "hourly", amount: 1 } } }, false],
    ["updateThing", { thingId, credits: { remaining: -1 } }, false],
    ["updateThing", { thingId, credits: { remaining: "1" } }, false],
    ["updateThing", { thingId, credits: { surprise: null } }, false],
    ["updateThing", { thingId, credits: [] }, false],
    ["updateThing", { thingId, limits: [limit, { ...limit, autoApply: null, tags: [], meta: { a: { b: [1] } } }] }, true],
    ["updateThing", { thingId, limits: [{ ...limit, limit: 0 }] }, false],
    ["updateThing", { thingId, limits: [{ ...limit, tags: ["a", ""] }] }, false],
    ["updateThing", { thingId, limits: [{ ...limit, tags: ["a", "b", "c", "d"] }] }, false],
    ["updateThing", { thingId, limits: [{ name: "a" }] }, false],
    ["updateThing", { thingId, limits: [null] }, false],
    ["updateThing", { thingId, limits: Array(6).fill(limit) }, false],
    ["updateThing", { thingId, updateMask: "name" }, false],
    ["updateThing", {}, false],
    ["checkLimits", [limit], true],
    ["checkLimits", Array(50).fill(limit), true],
    ["checkLimits", Array(51).fill(limit), false],
    ["checkLimits", [], false],
    ["checkLimits", [limit, {}], false],
    ["checkLimits", { limits: [limit] }, false],
    ["checkLimits", null, false],
  ];

  it.each(requests)("%s %j: %s", (name, request, expected) => {
    const accepts = ajv.compile({
      $ref: `openapi#/paths/~1v2~1things.${name}/post/requestBody/content/application~1json/schema`,
    });
    expect([accepts(request), isAccepted(name, request)]).toEqual([expected, expected]);
  });

  it("its own examples are accepted", () => {
    for (const name of ["updateThing", "checkLimits"] as const) {
      const { schema } = bodyOf(`/v2/things.${name}`);
      const { examples = [] } = (name === "checkLimits" ? schema : schemas["UpdateThingRequest"]) ?? {};
      const [example] = examples as unknown[];
      expect(isAccepted(name, name === "updateThing" ? { thingId, ...(example as object) } : example)).toBe(true);
    }
  });
});
