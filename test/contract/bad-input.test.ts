import { describe, expect, test } from "vitest";
import type { Refusal } from "../support/clients/outcome.js";
import { operatorKey } from "../support/harness.js";
import { operationOf } from "../support/operations.js";
import { badInputs } from "./bad-input-cases.js";
import { openContract } from "./cases.js";
import { openScene, type Scene } from "./scene.js";

const contract = openContract();
const { everyProtocol, someProtocols } = contract;
const invalid = "application/invalid_input";

/** The fields that a refusal names. */
function locations({ fields }: Refusal): string[] | undefined {
  return fields?.map(({ location }) => location);
}

/** Checks that the workspace is unchanged since the scene opened. */
async function expectNothingStored({ ok, home }: Scene): Promise<void> {
  expect(await ok("listIdentities", home.key)).toEqual([]);
  expect(await ok("listKeys", home.key)).toHaveLength(1);
  const { enabled } = await ok("getWorkspace", operatorKey, { workspaceId: home.workspaceId });
  expect(enabled).toBe(true);
}

describe("input validation: invalid fields are refused and named, and nothing is stored", () => {
  for (const { what, operations, location, requests } of badInputs) {
    for (const operation of operations) {
      everyProtocol(`${operation} refuses ${what} and names ${location}`, async (scene) => {
        const credential = operationOf(operation).scope === undefined ? operatorKey : scene.home.key;
        for (const request of requests) {
          const refusal = await scene.refused(invalid, operation, credential, request);
          expect(locations(refusal), JSON.stringify(request)).toEqual([location]);
        }
        await expectNothingStored(scene);
      });
    }
  }

  for (const operation of ["getIdentity", "deleteIdentity"] as const) {
    everyProtocol(
      `${operation} without a reference is refused, and the error names the three possible fields`,
      async (scene) => {
        const [named] = locations(await scene.refused(invalid, operation, scene.home.key, {})) ?? [];
        for (const field of ["identityId", "externalId", "identity"]) expect(named?.split("|")).toContain(field);
      },
    );
  }

  everyProtocol("every invalid field of a request is named, not only the first", async (scene) => {
    const request = { name: "", prefix: "a b", permissions: ["keys.read", "bad one", "worse one"], externalId: "" };
    const refusal = await scene.refused(invalid, "createKey", scene.home.key, request);
    expect(locations(refusal)?.sort()).toEqual(["externalId", "name", "permissions[1]", "permissions[2]", "prefix"]);
    for (const { location, message } of refusal.fields ?? []) {
      expect(message).toMatch(/\w/);
      expect(refusal.detail).toContain(location);
    }
  });

  for (const [what, request, location] of [
    ["without a reason", {}, "reason"],
    ["with an empty note", { reason: "OWNER_REQUEST", note: "" }, "note"],
    ["with a note of 1001 characters", { reason: "OWNER_REQUEST", note: "x".repeat(1001) }, "note"],
    ["with NUL in the note", { reason: "OWNER_REQUEST", note: "\0" }, "note"],
  ] as const) {
    everyProtocol(`disableWorkspace ${what} is refused, names ${location} and disables nothing`, async (scene) => {
      const { workspaceId } = scene.home;
      const refusal = await scene.refused(invalid, "disableWorkspace", operatorKey, { workspaceId, ...request });
      expect(locations(refusal)).toEqual([location]);
      await expectNothingStored(scene);
    });
  }
});

describe("values that only protobuf messages can express are refused as well", () => {
  for (const reason of [0, 8, 99, -1]) {
    someProtocols(
      ["grpc", "connect", "grpc-web"],
      `the enum value ${reason} as a reason is refused, and the field named`,
      async (scene) => {
        const { workspaceId } = scene.home;
        const refusal = await scene.refused(invalid, "disableWorkspace", operatorKey, { workspaceId, reason });
        expect(locations(refusal)).toEqual(["reason"]);
        await expectNothingStored(scene);
      },
    );
  }

  for (const number of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
    someProtocols(["grpc", "grpc-web"], `${number} in meta is refused, and meta named`, async (scene) => {
      for (const meta of [{ number }, { list: [{ number }] }]) {
        const request = { externalId: "user_1", meta };
        for (const operation of ["createIdentity", "createKey"] as const) {
          expect(locations(await scene.refused(invalid, operation, scene.home.key, request))).toEqual(["meta"]);
        }
      }
      await expectNothingStored(scene);
    });
  }

  for (const [what, expires] of [
    ["after the year 9999", { seconds: 253_402_300_800n, nanos: 0 }],
    ["before the year 1", { seconds: -62_135_596_801n, nanos: 0 }],
    ["at the end of 64 bits", { seconds: 2n ** 63n - 1n, nanos: 0 }],
    ["at the beginning of 64 bits", { seconds: -(2n ** 63n), nanos: 0 }],
    ["with a billion nanoseconds", { seconds: 253_402_300_000n, nanos: 1_000_000_000 }],
    ["with negative nanoseconds", { seconds: 253_402_300_000n, nanos: -1 }],
  ] as const) {
    someProtocols(["grpc", "grpc-web"], `an expiry ${what} is refused and named`, async (scene) => {
      const refusal = await scene.refused(invalid, "createKey", scene.home.key, { expires });
      expect(locations(refusal)).toEqual(["expires"]);
      await expectNothingStored(scene);
    });
  }
});

describe("invalid protobuf bytes over gRPC are refused, and the server keeps serving", () => {
  /** A length-delimited field of the wire format: number, length and content. */
  const field = (number: number, content: Uint8Array): Buffer => {
    const length: number[] = [];
    let rest = content.length;
    for (; rest > 0x7f; rest >>>= 7) length.push((rest & 0x7f) | 0x80);
    return Buffer.concat([Buffer.of((number << 3) | 2, ...length, rest), content]);
  };
  const externalId = field(1, Buffer.from("user_1"));
  const entry = (value: Buffer) => field(1, Buffer.concat([field(1, Buffer.from("a")), field(2, value)]));
  const deep = (levels: number): Buffer => (levels === 0 ? Buffer.alloc(0) : entry(field(5, deep(levels - 1))));

  test.each([
    ["random bytes", Buffer.of(0xff, 0x00, 0xde, 0xad), ["body"]],
    ["a truncated message", Buffer.of(0x0a, 0x7f, 0x61), ["body"]],
    ["an externalId that is not UTF-8", field(1, Buffer.of(0xff, 0xfe)), ["body", "externalId"]],
    ["half a surrogate pair in an externalId", field(1, Buffer.of(0xed, 0xa0, 0x80)), ["body", "externalId"]],
    [
      "a number in a large meta that extends past its end",
      Buffer.concat([
        externalId,
        field(2, Buffer.concat([entry(field(3, Buffer.alloc(2_000, "x"))), Buffer.of(0x18, 0x80)])),
        Buffer.of(0x01),
      ]),
      ["body", "meta"],
    ],
    ["a meta of 2000 levels", Buffer.concat([externalId, field(2, deep(2000))]), ["body", "meta"]],
  ])("%s", async (_what, bytes, possible) => {
    const { grpc } = contract.protocols;
    const scene = await openScene(grpc, contract.clock);
    const outcome = await grpc.callBytes("createIdentity", scene.home.key, bytes);
    if (outcome.ok) return expect.fail("the call succeeded");
    expect(outcome.code).toBe(invalid);
    expect(possible).toContain(locations(outcome)?.join());
    await expectNothingStored(scene);
  });
});
