import type { EventEmitter } from "node:events";
import type { Span } from "@opentelemetry/api";
import { deadlineExceeded, type Failure } from "../errors.js";

/** A call on its way through the service, whichever door it came through. */
export interface Call {
  readonly requestId: string;
  /** When it is to be answered at the latest, by `performance.now()`: jumps of the wall clock do not move it. */
  readonly deadline: number;
  /** Every value of a header, by its name in small letters. A function, so that no secret stands on what may be logged. */
  readonly headers?: (name: string) => readonly string[];
  /** What it came over, where the door can tell. */
  readonly connection?: object;
  /** What emits an event when the client goes away, and the name of that event. */
  readonly client?: EventEmitter;
  readonly leaving?: string;
  /** What traces tell of it. Undefined: nobody listens. */
  readonly span?: Span | undefined;
  /** The workspace that it is for. Undefined until the caller is known, and for the operator. */
  workspaceId?: string | undefined;
  /** The id of the key that calls. */
  callerId?: string | undefined;
  /** Whether it takes a right from somebody. Such a call has connections to the database that others leave free. */
  revokes?: boolean;
  /** What is told beside the answer, whatever that is: by headers, over gRPC by trailing metadata. */
  answerHeaders?: Readonly<Record<string, string>> | undefined;
  /** Why nobody waits for its answer any more. */
  ended?: Failure | undefined;
  /** How to stop what is being done for it. Made when there is something: most calls are answered at once. */
  work?: Set<() => void> | undefined;
}

/** An answer as it is kept for a caller who asks again. Only with the caller's credential can it be found and read. */
export interface KeptAnswer {
  readonly id: Buffer;
  readonly sealed: Buffer;
}

/** Nobody waits for the answer any more: what is being done for the call is stopped, and nothing more is begun. */
export function endCall(call: Call, why: Failure): void {
  call.ended = why;
  for (const stop of call.work ?? []) stop();
}

/** Throws if nobody waits for the answer any more. Every step that may have an effect looks here before it begins. */
export function refuseEnded(call: Call): void {
  if (call.ended !== undefined) throw call.ended;
  if (performance.now() >= call.deadline) throw deadlineExceeded();
}

/**
 * Waits for work that is done for a call alone, and stops it when the call ends. What was not begun by then, and is
 * begun by waiting for it, never is.
 */
export async function workFor<T>(call: Call, work: PromiseLike<T>, stop: () => void): Promise<T> {
  refuseEnded(call);
  call.work ??= new Set();
  call.work.add(stop);
  try {
    return await work;
  } finally {
    call.work.delete(stop);
  }
}
