import { ScalarType } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { rulesOf } from "../../robustness/fuzz/good-requests.js";
import { operations } from "../../robustness/fuzz/operations.js";

// What a field may have is compared before it is looked at. A field without a bound of its own would only have that of all.

describe.each(operations.map(({ name, rpc }) => [name, rpc.input.fields] as const))(
  "a request of %s",
  (_name, fields) => {
    it("has a bound in the rules of each list and each text", () => {
      for (const field of fields) {
        const type = rulesOf(field)?.type;
        if (field.fieldKind === "list") {
          expect(type?.case === "repeated" && type.value.maxItems > 0n, `${field}: repeated.max_items`).toBe(true);
        }
        if (field.scalar !== ScalarType.STRING) continue;
        const ofText = type?.case === "repeated" ? type.value.items?.type : type;
        expect(ofText?.case === "string" && ofText.value.maxLen > 0n, `${field}: string.max_len`).toBe(true);
      }
    });
  },
);
