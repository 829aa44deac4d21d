import { create, type DescService, setExtension } from "@bufbuild/protobuf";
import { MethodOptionsSchema } from "@bufbuild/protobuf/wkt";
import { describe, expect, it } from "vitest";
import { Health } from "../../../gen/grpc/health/v1/health_pb.js";
import { AccessSchema, access } from "../../../gen/latchkey/v1/access_pb.js";
import { KeysService } from "../../../gen/latchkey/v1/keys_service_pb.js";
import type { Idempotency } from "../../../src/idempotency/middleware.js";
import { createProcedures } from "../../../src/rpc/pipeline.js";

const noCall = () => {
  throw new Error("nobody calls");
};
const nobody = { authenticate: noCall, recheck: noCall, reread: noCall };

const asItIs: Idempotency = (_method, handle) => handle;

/** A service with some of its RPCs, and without handlers. */
function only(descriptor: DescService, ...names: string[]): DescService {
  return { ...descriptor, methods: descriptor.methods.filter(({ name }) => names.includes(name)) };
}

describe("the service does not start", () => {
  it("with an RPC that declares nobody who may call it", () => {
    const undeclared = { descriptor: only(Health, "Check"), handlers: {} };
    expect(() => createProcedures([undeclared], nobody, asItIs)).toThrow(
      /Check declares nobody who may call it.*access/,
    );
    const declared = { descriptor: only(KeysService, "ListKeys"), handlers: {} };
    expect(createProcedures([declared], nobody, asItIs)).toHaveLength(1);
  });

  it("with an RPC whose declaration lets nobody in", () => {
    const [method] = only(KeysService, "ListKeys").methods;
    const options = create(MethodOptionsSchema);
    setExtension(options, access, create(AccessSchema));
    const emptied = { ...KeysService, methods: [{ ...method, proto: { ...method?.proto, options } }] };
    expect(() => createProcedures([{ descriptor: emptied as DescService, handlers: {} }], nobody, asItIs)).toThrow(
      /declares nobody/,
    );
  });

  it("with an RPC that streams, which the pipeline could not judge call by call", () => {
    const streaming = { descriptor: only(Health, "Watch"), handlers: {} };
    expect(() => createProcedures([streaming], nobody, asItIs)).toThrow(/only unary RPCs/);
  });
});
