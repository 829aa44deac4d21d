import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { DelegateRequestSchema } from "../../../gen/latchkey/v1/verifier_service_pb.js";
import type { ApiError } from "../../../src/errors.js";
import { createValidate } from "../../../src/rpc/validate.js";
import { ImportThingsRequestSchema, UpdateThingRequestSchema } from "../../support/things-service.js";

const validate = createValidate([UpdateThingRequestSchema, ImportThingsRequestSchema, DelegateRequestSchema]);

const limit = { name: "requests", limit: 5n };

/** The errors of an update, by one of the two checks. */
function errorsOf(check: "form" | "rules", members: object): string[] {
  const request = create(UpdateThingRequestSchema, { thingId: "a", ...members } as MessageInitShape<
    typeof UpdateThingRequestSchema
  >);
  return namesIn(() => validate[check](UpdateThingRequestSchema, request));
}

function namesIn(check: () => void): string[] {
  try {
    check();
    return [];
  } catch (error) {
    return (error as ApiError).options.fields?.map(({ location, message }) => `${location} ${message}`) ?? [];
  }
}

describe("the form of messages in a request is validated, and errors have their full path:", () => {
  const noTime = { seconds: 253_402_300_800n };
  const lastTime = { seconds: 253_402_300_799n, nanos: 999_499_999 };
  const roundedToNoTime = { seconds: 253_402_300_799n, nanos: 999_500_000 };

  // biome-ignore format: one line each
  it.each<[string, object, string]>([
    ["NUL in a message of a list", { limits: [limit, { ...limit, name: "\0" }] }, "limits[1].name must not contain the character U+0000"],
    ["NUL in a list of a message", { limits: [{ ...limit, tags: ["a", "\0"] }] }, "limits[0].tags[1] must not contain the character U+0000"],
    ["a lone surrogate two levels deep", { credits: { refill: { interval: "\ud800" } } }, "credits.refill.interval must be well-formed Unicode, without lone surrogates"],
    ["a long text", { limits: [{ ...limit, name: "x".repeat(41) }] }, "limits[0].name must be at most 20 characters"],
    ["too many messages", { limits: Array(6).fill(limit) }, "limits must contain no more than 5 item(s)"],
    ["too many items in a message", { limits: [{ ...limit, tags: Array(4).fill("a") }] }, "limits[0].tags must contain no more than 3 item(s)"],
    ["a large object", { limits: [{ ...limit, meta: { a: "x".repeat(16_384) } }] }, "limits[0].meta must not be larger than 16 KiB as JSON"],
    ["an infinite number", { limits: [{ ...limit, meta: { a: Number.NaN } }] }, "limits[0].meta must contain only finite numbers"],
    ["a time that does not exist", { limits: [{ ...limit, until: noTime }] }, "limits[0].until must be a time between the years 1 and 9999"],
    ["a time that is rounded to one that does not exist", { limits: [{ ...limit, until: roundedToNoTime }] }, "limits[0].until must be a time between the years 1 and 9999"],
    ["too many paths", { updateMask: { paths: Array(7).fill("name") } }, "updateMask must name at most 6 fields"],
  ])("%s", (_what, members, error) => {
    expect(errorsOf("form", members)).toEqual([error]);
  });

  it("valid messages", () => {
    const full = { ...limit, autoApply: true, tags: ["a"], meta: { a: { b: [1] } }, until: { seconds: 1n } };
    const last = { ...limit, until: lastTime };
    const members = { credits: { remaining: 5n, refill: { interval: "daily", amount: 1n } }, limits: [full, last] };
    expect(errorsOf("form", members)).toEqual([]);
    expect(errorsOf("rules", members)).toEqual([]);
  });

  it("at most ten errors are listed, however many messages have one", () => {
    const things = Array.from({ length: 100 }, () => ({ hash: "\0", permissions: ["\0"] }));
    const request = create(ImportThingsRequestSchema, { things } as MessageInitShape<typeof ImportThingsRequestSchema>);
    expect(namesIn(() => validate.form(ImportThingsRequestSchema, request))).toHaveLength(10);
    expect(() => validate.form(ImportThingsRequestSchema, request)).toThrow(/and more than these ten\.$/);
  });

  it("a message in a oneof", () => {
    const keys = Array.from({ length: 501 }, () => ({}));
    const request = create(DelegateRequestSchema, { message: { case: "uses", value: { keys } } });
    expect(namesIn(() => validate.form(DelegateRequestSchema, request))).toEqual([
      "uses.keys must contain no more than 500 item(s)",
    ]);
  });
});

it("violated rules have their full path", () => {
  const members = {
    credits: { remaining: -1n, refill: { interval: "hourly", amount: 0n, refillDay: 32 } },
    limits: [limit, { name: "", limit: 0n, tags: ["a", ""] }],
  };
  const locations = errorsOf("rules", members).map((error) => error.replace(/ .*/, ""));
  expect(locations.sort()).toEqual([
    "credits.refill.amount",
    "credits.refill.interval",
    "credits.refill.refillDay",
    "credits.remaining",
    "limits[1].limit",
    "limits[1].name",
    "limits[1].tags[1]",
  ]);
});
