import { ScalarType } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { operations } from "../../robustness/fuzz/operations.js";
import { rulesOf } from "../../robustness/fuzz/valid-requests.js";

// The limits of a field are checked before its value is processed. A field without a limit of its own would only have
// the general one.

describe.each(operations.map(({ name, rpc }) => [name, rpc.input.fields] as const))(
  "the request of %s",
  (_name, fields) => {
    it("has a length limit in the rules of each list and each string", () => {
      for (const field of fields) {
        const type = rulesOf(field)?.type;
        if (field.fieldKind === "list") {
          expect(type?.case === "repeated" && type.value.maxItems > 0n, `${field}: repeated.max_items`).toBe(true);
        }
        if (field.scalar !== ScalarType.STRING) continue;
        const stringType = type?.case === "repeated" ? type.value.items?.type : type;
        expect(stringType?.case === "string" && stringType.value.maxLen > 0n, `${field}: string.max_len`).toBe(true);
      }
    });
  },
);
