import type { ApiError } from "../errors.js";
import type { Call } from "./call.js";
import type { KeyCaller } from "./context.js";
import type { MaybePromise } from "./maybe-promise.js";

/** The connection of a bidirectional stream to its client. */
export interface StreamChannel<Response> {
  /** Sends a message. Messages arrive in the order in which they were sent. */
  send(message: Response): void;
  /** Whether the client reads so slowly that nothing more may be sent now. */
  isCongested(): boolean;
  /** Ends the stream with an error. */
  end(error: ApiError): void;
}

/** The caller of a stream. Unlike a call, a stream outlives the state in which its caller was admitted. */
export interface StreamCaller {
  readonly workspaceId: string;
  /** Authenticates and authorizes the caller again. Throws once the caller was revoked. */
  recheck(): MaybePromise<KeyCaller>;
  /** The same, and counts a call against the rate limit of the workspace. */
  admit(): MaybePromise<unknown>;
  /** A call for work on behalf of the stream. */
  newCall(): Call;
  /** The error that the client gets for anything thrown. */
  toApiError(thrown: unknown): ApiError;
}

/** The service's side of a stream. */
export interface ServerStream<Request> {
  receive(message: Request): void;
  /** Must be called once, when the stream is closed. */
  closed(): void;
}

/** Serves a stream whose caller was admitted. */
export type ServeStream<Request, Response> = (
  channel: StreamChannel<Response>,
  caller: StreamCaller,
) => ServerStream<Request>;
