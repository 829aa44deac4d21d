import fc from "fast-check";
import { describe, type ProtocolName, type RawRequest } from "../../support/clients/raw-request.js";
import type { Draft, Kind } from "./kind.js";
import { kinds } from "./kinds.js";
import { type Operation, operations } from "./operations.js";

/** One test case. */
export interface Case {
  readonly operation: Operation;
  readonly protocol: ProtocolName;
  readonly kind: string;
  readonly draft: Draft;
  /** The request, once it was sent. It is more useful in a report than its generator. */
  raw?: RawRequest;
}

/** The two most used protocols get the most cases. */
const protocolWeights: Record<ProtocolName, number> = {
  http: 4,
  grpc: 4,
  connect: 1,
  "connect-proto": 1,
  "grpc-web": 1,
};

/** Generates cases of every kind, for every operation that it applies to, over every protocol that can carry it. */
export function anyCase(): fc.Arbitrary<Case> {
  return fc.oneof(...kinds.flatMap(ofKind));
}

function ofKind(kind: Kind): { weight: number; arbitrary: fc.Arbitrary<Case> }[] {
  const applicable = operations.filter((operation) => kind.applies?.(operation) ?? true);
  const total = kind.protocols.reduce((sum, protocol) => sum + protocolWeights[protocol], 0) * applicable.length;
  return applicable.flatMap((operation) =>
    kind.protocols.map((protocol) => ({
      weight: Math.ceil((10_000 * (kind.weight ?? 10) * protocolWeights[protocol]) / total),
      arbitrary: kind
        .make(operation, protocol)
        .map((draft) => described({ operation, protocol, kind: kind.name, draft })),
    })),
  );
}

function described(testCase: Case): Case {
  const { operation, protocol, kind } = testCase;
  const request = () => (testCase.raw ? describe(testCase.raw) : "not sent");
  return Object.assign(testCase, { toString: () => `${operation.name} over ${protocol}, ${kind}: ${request()}` });
}
