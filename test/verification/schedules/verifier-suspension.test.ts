import { create } from "@bufbuild/protobuf";
import { expect, it } from "vitest";
import { VerificationCode } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { type DelegateResponse, DelegateResponseSchema } from "../../../gen/latchkey/v1/verifier_service_pb.js";
import { createSession } from "../../../src/verifier/session.js";

const hash = "ab".repeat(32);

/** Random schedules rarely find this: nothing must be verified between the suspension and the next grant. */
it("a grant after a suspension does not revive a key that has expired meanwhile", () => {
  let monotonic = 0;
  let wall = 1_000_000;
  let jumps = 0;
  const session = createSession({
    clock: { monotonic: () => monotonic, wall: () => wall },
    maxBytes: 1_000_000,
    send() {},
    onGrant() {},
    onClockJump() {
      jumps += 1;
    },
  });
  const receive = (message: DelegateResponse["message"]) =>
    session.receive(create(DelegateResponseSchema, { message: message as never }));
  const grant = (ping: number) => receive({ case: "grant", value: { ping, remainingMs: 250 } } as never);

  session.ping();
  grant(1);
  void session.resolve(hash);
  const result = { valid: true, code: VerificationCode.VALID, keyId: "key" };
  const cached = { result, validForMs: 1_000n, dependsOn: ["key"] };
  receive({ case: "key", value: { id: 1, result: { case: "cached", value: cached } } } as never);
  expect(session.find(hash)?.result.code).toBe("VALID");

  wall += 10_000; // the machine was suspended
  monotonic += 1;
  wall += 1;
  session.ping();
  grant(2);
  expect(session.find(hash)).toBeUndefined();
  expect(jumps).toBe(1);
});
