import type { EventEmitter } from "node:events";
import type { Span } from "@opentelemetry/api";
import { type ApiError, deadlineExceeded } from "../errors.js";

/** A call on its way through the service, whichever protocol it came through. */
export interface Call {
  readonly requestId: string;
  /** When it is to be answered at the latest, by `performance.now()`: jumps of the wall clock do not move it. */
  readonly deadline: number;
  /** Every value of a header, by its name in small letters. A function, so that no secret stands on what may be logged. */
  readonly headers?: (name: string) => readonly string[];
  /** What it came over, where the protocol can tell. */
  readonly connection?: object;
  /** What emits an event when the client goes away, and the name of that event. */
  readonly client?: EventEmitter;
  readonly closeEvent?: string;
  /** What traces tell of it. Undefined: nobody listens. */
  readonly span?: Span | undefined;
  /** The workspace that it is for. Undefined until the caller is known, and for the operator. */
  workspaceId?: string | undefined;
  /** The id of the key that calls. */
  callerId?: string | undefined;
  /** Whether it takes a right from somebody. Such a call has connections to the database that others leave free. */
  revokes?: boolean;
  /** What is told beside the answer, whatever that is: by headers, over gRPC by trailing metadata. */
  responseHeaders?: Readonly<Record<string, string>> | undefined;
  /** Why nobody waits for its answer any more. */
  abortReason?: ApiError | undefined;
  /** How to stop what is being done for it. Made when there is something: most calls are answered at once. */
  onAbort?: Set<() => void> | undefined;
}

/** An answer as it is kept for a caller who asks again. Only with the caller's credential can it be found and read. */
export interface IdempotencyRecord {
  readonly id: Buffer;
  readonly encrypted: Buffer;
}

/** Nobody waits for the answer any more: what is being done for the call is stopped, and nothing more is begun. */
export function abortCall(call: Call, why: ApiError): void {
  call.abortReason = why;
  for (const stop of call.onAbort ?? []) stop();
}

/** Throws if nobody waits for the answer any more. Every step that may have an effect looks here before it begins. */
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
