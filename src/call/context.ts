import type { DescMessage, DescService, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { Call, IdempotencyRecord } from "./call.js";
import type { MaybePromise } from "./maybe-promise.js";

/** Who is calling: the operator of the service, or a workspace's key. */
export type Principal = Operator | KeyHolder;

export interface Operator {
  readonly kind: "operator";
}

/** The key that a call was authorized by, with all that this was decided by. */
export interface AuthorizedKey {
  readonly keyId: string;
  /** What the key may do with this service. */
  readonly scopes: readonly string[];
  /** When the key ends; null for never. */
  readonly expiresAt: Date | null;
}

export interface KeyHolder extends AuthorizedKey {
  readonly kind: "key";
  readonly workspaceId: string;
  /** Of its secret, by which it is found again. */
  readonly hash: string;
}

/** What a handler gets beside its request, whichever protocol the call came through. */
export interface CallContext {
  readonly caller: Principal;
  readonly call: Call;
  /** Undefined unless the caller may ask again; then what this makes of the answer is stored with the change. */
  readonly record?: (answer: MessageInitShape<DescMessage>) => IdempotencyRecord;
}

/** The key that calls. Handlers of operations that only keys may call rely on the pipeline to admit nobody else. */
export function callingKey({ caller }: CallContext): KeyHolder {
  if (caller.kind !== "key") throw new Error("a handler for keys was reached without one");
  return caller;
}

/** Who makes a change, and in which request. When, the database says. */
export interface Actor {
  /** `operator`, or the keyId of the key that calls. */
  readonly actor: string;
  readonly requestId: string;
  /** The key that calls; undefined for the operator. */
  readonly key: AuthorizedKey | undefined;
}

/** Who answers for the changes of this call. */
export function actorOf({ caller, call }: CallContext): Actor {
  const key = authorizedKeyOf(caller);
  return { actor: key?.keyId ?? "operator", requestId: call.requestId, key };
}

/** The key whose authorization a call depends on; undefined for the operator. */
export function authorizedKeyOf(caller: Principal): AuthorizedKey | undefined {
  return caller.kind === "key" ? caller : undefined;
}

/** A service's handlers: Connect's ServiceImpl, with a context that every protocol has, and answers that may be there. */
export type Handlers<Service extends DescService> = {
  [Method in keyof Service["method"]]: (
    request: MessageShape<Service["method"][Method]["input"]>,
    context: CallContext,
  ) => MaybePromise<MessageInitShape<Service["method"][Method]["output"]>>;
};
