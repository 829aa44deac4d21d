import type { EventEmitter } from "node:events";
import type { Span } from "@opentelemetry/api";
import { type ApiError, deadlineExceeded } from "../errors.js";

/** One RPC in this process, on any protocol. */
export interface Call {
  readonly requestId: string;
  /** The deadline of the response, by `performance.now()`, so that jumps of the wall clock do not move it. */
  readonly deadline: number;
  /** Every value of a header, by its lower-case name. A function, so that a logged call contains no secret. */
  readonly headers?: (name: string) => readonly string[];
  /** The connection of the call, if the protocol exposes it. */
  readonly connection?: object;
  /** The emitter of an event when the client disconnects, and the name of that event. */
  readonly client?: EventEmitter;
  readonly closeEvent?: string;
  /** The trace span. Undefined if tracing is off. */
  readonly span?: Span | undefined;
  /** The workspace of the caller. Undefined until the caller is authenticated, and for the operator. */
  workspaceId?: string | undefined;
  /** The id of the calling key. */
  callerId?: string | undefined;
  /** Whether the call revokes something. Some database connections are reserved for such calls. */
  revokes?: boolean;
  /** Headers of the response, also of an error. Over gRPC they are trailing metadata. */
  responseHeaders?: Readonly<Record<string, string>> | undefined;
  /** Why the call was aborted. */
  abortReason?: ApiError | undefined;
  /** Cancels the work in flight for the call. Created only when needed: most calls are answered synchronously. */
  onAbort?: Set<() => void> | undefined;
}

/** A response stored for a retry. Only the caller's credential can find and decrypt it. */
export interface IdempotencyRecord {
  readonly id: Buffer;
  /** The workspace of the caller; null for the operator. */
  readonly workspaceId: string | null;
  readonly encrypted: Buffer;
  /** For how long it is kept. */
  readonly keptHours: number;
}

/** Ends a call early: the work in flight for it is cancelled, and no more is begun. */
export function abortCall(call: Call, reason: ApiError): void {
  call.abortReason = reason;
  for (const cancel of call.onAbort ?? []) cancel();
}

/** Throws if the call was aborted or its deadline has passed. Every step that may have an effect calls this first. */
export function throwIfAborted(call: Call): void {
  if (call.abortReason !== undefined) throw call.abortReason;
  if (performance.now() >= call.deadline) throw deadlineExceeded();
}

/** Work that can be stopped before it has a result. */
export interface Cancellable<T> {
  readonly result: Promise<T>;
  cancel(): void;
}

/** Starts work for one call, unless the call is aborted already, and cancels it when the call is aborted. */
export async function runUnlessAborted<T>(call: Call, start: () => Cancellable<T>): Promise<T> {
  throwIfAborted(call);
  const { result, cancel } = start();
  call.onAbort ??= new Set();
  call.onAbort.add(cancel);
  try {
    return await result;
  } finally {
    call.onAbort.delete(cancel);
  }
}
