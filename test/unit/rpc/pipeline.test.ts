import { create, type DescService, setExtension } from "@bufbuild/protobuf";
import { MethodOptionsSchema } from "@bufbuild/protobuf/wkt";
import { describe, expect, it } from "vitest";
import { Health } from "../../../gen/grpc/health/v1/health_pb.js";
import { AccessSchema, access } from "../../../gen/latchkey/v1/access_pb.js";
import { KeysService } from "../../../gen/latchkey/v1/keys_service_pb.js";
import type { Idempotency } from "../../../src/idempotency/middleware.js";
import { createProcedures } from "../../../src/rpc/pipeline.js";

const unexpected = () => {
  throw new Error("unexpected call");
};
const authentication = { authenticate: unexpected, recheck: unexpected, reread: unexpected };

const noIdempotency: Idempotency = (_method, handle) => handle;

/** A service with some of its RPCs, and without handlers. */
function withOnly(descriptor: DescService, ...names: string[]): DescService {
  return { ...descriptor, methods: descriptor.methods.filter(({ name }) => names.includes(name)) };
}

describe("createProcedures throws at startup", () => {
  it("for an RPC without an access declaration", () => {
    const undeclared = { descriptor: withOnly(Health, "Check"), handlers: {} };
    expect(() => createProcedures([undeclared], authentication, noIdempotency)).toThrow(
      /Check does not declare who may call it.*access/,
    );
    const declared = { descriptor: withOnly(KeysService, "ListKeys"), handlers: {} };
    expect(createProcedures([declared], authentication, noIdempotency)).toHaveLength(1);
  });

  it("for an RPC whose access declaration admits no caller", () => {
    const [method] = withOnly(KeysService, "ListKeys").methods;
    const options = create(MethodOptionsSchema);
    setExtension(options, access, create(AccessSchema));
    const withoutCallers = { ...KeysService, methods: [{ ...method, proto: { ...method?.proto, options } }] };
    expect(() =>
      createProcedures([{ descriptor: withoutCallers as DescService, handlers: {} }], authentication, noIdempotency),
    ).toThrow(/does not declare who may call it/);
  });

  it("for a streaming RPC, which the pipeline cannot authorize and validate as one call", () => {
    const streaming = { descriptor: withOnly(Health, "Watch"), handlers: {} };
    expect(() => createProcedures([streaming], authentication, noIdempotency)).toThrow(/only unary RPCs/);
  });
});
