import type { DescService, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { createContextKey, createContextValues, type HandlerContext } from "@connectrpc/connect";
import type { Author } from "../audit/store.js";

/** Who is calling: the operator of the service, or a workspace's key. */
export type Principal = Operator | KeyHolder;

export interface Operator {
  readonly kind: "operator";
}

export interface KeyHolder {
  readonly kind: "key";
  readonly keyId: string;
  readonly workspaceId: string;
  readonly permissions: readonly string[];
}

/** Whether granted permissions cover a wanted one, which may itself be a wildcard. */
export function covers(granted: readonly string[], wanted: string): boolean {
  return granted.some(
    (grant) => grant === "*" || grant === wanted || (grant.endsWith(".*") && wanted.startsWith(grant.slice(0, -1))),
  );
}

/** What a handler gets beside its request: the part of Connect's HandlerContext that every door offers cheaply. */
export type CallContext = Pick<HandlerContext, "values">;

const principalKey = createContextKey<Principal | undefined>(undefined);
const requestIdKey = createContextKey("");

/** The context of a call that was admitted for this principal. */
export function contextFor(principal: Principal, requestId: string): CallContext {
  return { values: createContextValues().set(principalKey, principal).set(requestIdKey, requestId) };
}

/** Who calls. */
export function callerOf(context: CallContext): Principal {
  const principal = context.values.get(principalKey);
  if (principal === undefined) throw new Error("a handler was reached without a caller");
  return principal;
}

/** The key that calls. Handlers of operations that only keys may call rely on the pipeline to admit nobody else. */
export function callingKey(context: CallContext): KeyHolder {
  const principal = callerOf(context);
  if (principal.kind !== "key") throw new Error("a handler for keys was reached without one");
  return principal;
}

/** Who answers for the changes of this call. */
export function authorOf(context: CallContext, at: Date): Author {
  const caller = callerOf(context);
  return { actor: caller.kind === "key" ? caller.keyId : "operator", requestId: context.values.get(requestIdKey), at };
}

/** A service's handlers: what Connect's ServiceImpl asks for, with the smaller context. */
export type Handlers<Service extends DescService> = {
  [Method in keyof Service["method"]]: (
    request: MessageShape<Service["method"][Method]["input"]>,
    context: CallContext,
  ) => Promise<MessageInitShape<Service["method"][Method]["output"]>>;
};
