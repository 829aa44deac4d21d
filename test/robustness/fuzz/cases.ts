import fc from "fast-check";
import type { Draft, Kind } from "./kind.js";
import { kinds } from "./kinds.js";
import { type Operation, operations } from "./operations.js";
import { describe, type ProtocolName, type Sent } from "./sent.js";

/** One thing to try. */
export interface Case {
  readonly operation: Operation;
  readonly protocol: ProtocolName;
  readonly kind: string;
  readonly draft: Draft;
  /** What was sent, once it was: it says more than how it was made. */
  sent?: Sent;
}

/** The two protocols that most come through get the most. */
const shares: Record<ProtocolName, number> = { http: 4, grpc: 4, connect: 1, "connect-proto": 1, "grpc-web": 1 };

/** Any case: of every kind, for every operation that it applies to, through every protocol that it can be sent by. */
export function anyCase(): fc.Arbitrary<Case> {
  return fc.oneof(...kinds.flatMap(ofKind));
}

function ofKind(kind: Kind): { weight: number; arbitrary: fc.Arbitrary<Case> }[] {
  const applied = operations.filter((operation) => kind.applies?.(operation) ?? true);
  const share = kind.protocols.reduce((sum, protocol) => sum + shares[protocol], 0) * applied.length;
  return applied.flatMap((operation) =>
    kind.protocols.map((protocol) => ({
      weight: Math.ceil((10_000 * (kind.weight ?? 10) * shares[protocol]) / share),
      arbitrary: kind
        .make(operation, protocol)
        .map((draft) => described({ operation, protocol, kind: kind.name, draft })),
    })),
  );
}

function described(made: Case): Case {
  const text = () =>
    `${made.operation.name} through ${made.protocol}, ${made.kind}: ${made.sent ? describe(made.sent) : "not sent"}`;
  return Object.assign(made, { toString: text });
}
