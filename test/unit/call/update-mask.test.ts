import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { UpdateIdentityRequestSchema } from "../../../gen/latchkey/v1/identities_service_pb.js";
import { changedFields, updateMaskOf } from "../../../src/call/update-mask.js";
import { CheckLimitsRequestSchema, UpdateThingRequestSchema } from "../../support/things-service.js";

const refill = { interval: "daily", amount: 5n };

/** The changed fields of a request, without a mask or with one that names these paths. */
function changed(members: object, ...paths: string[]): string[] {
  const request = create(UpdateThingRequestSchema, {
    thingId: "thing_1",
    ...members,
    ...(paths.length > 0 && { updateMask: { paths } }),
  } as MessageInitShape<typeof UpdateThingRequestSchema>);
  return [...changedFields(UpdateThingRequestSchema, request as never)];
}

describe("without a mask, the fields that are set change", () => {
  it.each<[string, object, string[]]>([
    ["a text", { name: "a" }, ["name"]],
    ["a list of messages, as a whole", { limits: [{ name: "a" }] }, ["limits"]],
    ["a member of a message", { credits: { remaining: 5n } }, ["credits.remaining"]],
    ["a member that is 0 and has presence", { credits: { remaining: 0n } }, ["credits.remaining"]],
    ["a member that is a message, as a whole", { credits: { refill } }, ["credits.refill"]],
    ["two members", { credits: { remaining: 5n, refill } }, ["credits.remaining", "credits.refill"]],
    ["no member of an empty message", { credits: {} }, []],
    ["no field that identifies the resource", {}, []],
  ])("%s", (_what, members, paths) => {
    expect(changed(members)).toEqual(paths);
  });
});

describe("with a mask, the fields that it names change", () => {
  it.each<[string, object, string[], string[]]>([
    ["a message as a whole", { credits: { remaining: 5n } }, ["credits"], ["credits"]],
    ["a message that is cleared", {}, ["credits"], ["credits"]],
    ["a member that is cleared", { credits: {} }, ["credits.remaining"], ["credits.remaining"]],
    ["a member of an unset message", {}, ["credits.refill"], ["credits.refill"]],
    [
      "a member, and not others that are set",
      { credits: { remaining: 5n, refill } },
      ["credits.refill"],
      ["credits.refill"],
    ],
    [
      "a message together with its member, as a whole",
      {},
      ["credits.remaining", "credits", "name"],
      ["credits", "name"],
    ],
    ["a field that is named twice", {}, ["name", "name"], ["name"]],
  ])("%s", (_what, members, mask, paths) => {
    expect(changed(members, ...mask)).toEqual(paths);
  });

  it.each(["thing_id", "credits.refill.amount", "credits.", "credits.amount", "meta.a", "limits.name", ""])(
    "the path %j is refused",
    (path) => {
      expect(() => changed({}, "name", path)).toThrow(
        /^The request is not valid: updateMask can name only name, credits,/,
      );
    },
  );
});

it("a message without an update mask has no changed fields", () => {
  expect(updateMaskOf(CheckLimitsRequestSchema)).toBeUndefined();
  const request = create(CheckLimitsRequestSchema);
  expect([...changedFields(CheckLimitsRequestSchema, request as never)]).toEqual([]);
});

it("a mask that names only whole fields has no members", () => {
  expect(updateMaskOf(UpdateIdentityRequestSchema)?.members.size).toBe(0);
});
