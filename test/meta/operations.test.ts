import { getOption, hasOption } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { http } from "../../gen/google/api/annotations_pb.js";
import { access } from "../../gen/latchkey/v1/access_pb.js";
import { accepts_idempotency_key } from "../../gen/latchkey/v1/idempotency_pb.js";
import { VerifierService } from "../../gen/latchkey/v1/verifier_service_pb.js";
import { keyOperations, operationOf, operatorOperations } from "../support/operations.js";
import { rpcs } from "../support/rpcs.js";

const operations = [...keyOperations, ...operatorOperations].map(operationOf);

describe("the contract tests cover every RPC", () => {
  test("the RPCs are those of all services", () => {
    expect(new Set(rpcs.map(({ name }) => name.split(".")[0])).size).toBe(6);
    expect(rpcs).toHaveLength(operations.length);
  });

  for (const { name, method: rpc, routes } of rpcs) {
    test(`${name} is covered once, and declares the documented access, routes and idempotency`, () => {
      const found = operations.filter((operation) => operation.rpc === rpc);
      expect(found).toHaveLength(1);
      expect(hasOption(rpc, access)).toBe(true);
      const { scope, operator } = getOption(rpc, access);
      const [documented] = found;
      expect(scope).toBe(documented?.scope ?? "");
      expect(operator).toBe(documented?.scope === undefined || documented.alsoOperator === true);
      expect(routes).toEqual(documented?.routes);
      expect(getOption(rpc, accepts_idempotency_key)).toBe(documented?.acceptsIdempotencyKey === true);
    });
  }
});

test("Delegate is the only stream: it is served over gRPC alone, to keys with the scope keys.verify", () => {
  const { methods } = VerifierService;
  expect(methods.map(({ name, methodKind }) => [name, methodKind])).toEqual([["Delegate", "bidi_streaming"]]);
  for (const method of methods) {
    expect(getOption(method, access)).toMatchObject({ scope: "keys.verify", operator: false });
    expect(hasOption(method, http)).toBe(false);
  }
});
