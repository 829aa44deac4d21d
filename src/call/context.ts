import type { DescMessage, DescService, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { Call, IdempotencyRecord } from "./call.js";
import type { MaybePromise } from "./maybe-promise.js";

/** The authenticated caller: an operator of the service, or a workspace's key. */
export type Principal = Operator | KeyCaller;

export interface Operator {
  readonly kind: "operator";
  /** The author of its changes in audit events. */
  readonly actor: string;
}

/** The key that authorized a call, with everything that the decision depended on. */
export interface AuthorizedKey {
  readonly keyId: string;
  /** What the key may do with this service. */
  readonly scopes: readonly string[];
  /** When the key expires; null for never. */
  readonly expiresAt: Date | null;
}

export interface KeyCaller extends AuthorizedKey {
  readonly kind: "key";
  readonly workspaceId: string;
  /** The hash of its secret, by which the key is looked up again. */
  readonly hash: string;
}

/** The arguments of a handler beside its request, the same for every protocol. */
export interface CallContext {
  readonly caller: Principal;
  readonly call: Call;
  /** Makes the idempotency record that is stored with the change. Undefined if the call has no idempotency key. */
  readonly record?: (response: MessageInitShape<DescMessage>) => IdempotencyRecord;
}

/** The calling key. Handlers that only keys may call rely on the pipeline to refuse every other caller. */
export function callingKey({ caller }: CallContext): KeyCaller {
  if (caller.kind !== "key") throw new Error("a handler that requires a key was called by the operator");
  return caller;
}

/** The author of a change, and its request. The database sets the time. */
export interface Actor {
  /** `operator`, `operator:` and the name of its credential, or the keyId of the calling key. */
  readonly actor: string;
  readonly requestId: string;
  /** The calling key; undefined for the operator. */
  readonly key: AuthorizedKey | undefined;
}

/** The author of the changes of this call. */
export function actorOf({ caller, call }: CallContext): Actor {
  const actor = caller.kind === "key" ? caller.keyId : caller.actor;
  return { actor, requestId: call.requestId, key: authorizedKeyOf(caller) };
}

/** The key whose authorization a call depends on; undefined for the operator. */
export function authorizedKeyOf(caller: Principal): AuthorizedKey | undefined {
  return caller.kind === "key" ? caller : undefined;
}

/**
 * A service's handlers: like Connect's ServiceImpl, with a context for every protocol, and responses that may be
 * synchronous.
 */
export type Handlers<Service extends DescService> = {
  [Method in keyof Service["method"]]: (
    request: MessageShape<Service["method"][Method]["input"]>,
    context: CallContext,
  ) => MaybePromise<MessageInitShape<Service["method"][Method]["output"]>>;
};
