import { ScalarType } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { VerifyKeyRequestSchema } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { maxFieldBytes } from "../../../src/rpc/message-limits.js";
import { operations } from "../../robustness/fuzz/operations.js";
import { rulesOf } from "../../robustness/fuzz/valid-requests.js";
import { placesIn } from "../../support/places.js";

// The limits of a field are checked before its value is processed. A field without a limit of its own would only have
// the general one.

describe.each(operations.map(({ name, rpc }) => [name, placesIn(rpc.input).map(({ field }) => field)] as const))(
  "the request of %s",
  (_name, fields) => {
    it("has a length limit in the rules of each list and each string", () => {
      for (const field of fields) {
        const type = rulesOf(field)?.type;
        if (field.fieldKind === "list") {
          expect(type?.case === "repeated" && type.value.maxItems > 0n, `${field}: repeated.max_items`).toBe(true);
        }
        // Any text can be presented as a key. It has the general limit, and a long one is not looked up.
        if (field.scalar !== ScalarType.STRING || field === VerifyKeyRequestSchema.field.key) continue;
        const stringType = type?.case === "repeated" ? type.value.items?.type : type;
        const { maxLen = 0n, in: values = [] } = stringType?.case === "string" ? stringType.value : {};
        expect(maxLen > 0n || values.length > 0, `${field}: string.max_len`).toBe(true);
      }
    });

    it("has no list of strings that can be valid and larger than the limit of a value", () => {
      for (const field of fields.filter(
        ({ fieldKind, scalar }) => fieldKind === "list" && scalar === ScalarType.STRING,
      )) {
        const type = rulesOf(field)?.type;
        const items = type?.case === "repeated" ? type.value.items?.type : undefined;
        if (type?.case !== "repeated" || items?.case !== "string") return expect.fail(`${field} has no limits`);
        const bytes = Number(type.value.maxItems) * (Number(items.value.maxLen) + `"",`.length);
        expect(bytes, `${field}: max_items and items.string.max_len`).toBeLessThanOrEqual(maxFieldBytes);
      }
    });
  },
);
