import type { Request } from "./request.js";

/** The result of a call, as its client sees it. */
export type CallResult =
  /** Accepted, with the fields of the response. */
  | { readonly kind: "success"; readonly fields: Readonly<Record<string, unknown>> }
  /** An error of the catalogue, by its code in lower case, such as `workspace_disabled`. */
  | { readonly kind: "refused"; readonly code: string }
  /** Inconclusive: 503, 504, a timeout or a broken connection. A change may have been applied. */
  | { readonly kind: "unavailable"; readonly why: string }
  /** No connection to the replica, so no change can have been applied. */
  | { readonly kind: "unsent" };

/** A client of one replica, for one protocol. */
export interface ProtocolClient {
  readonly name: "grpc" | "http" | "connect";
  call(request: Request, done: (result: CallResult) => void): void;
  close(): void;
}

/** How long a client waits for a response. */
export const callTimeoutMs = 2_500;

/** Error codes that show nothing about the caller: the service could not decide. */
export const inconclusiveCodes: ReadonlySet<string> = new Set([
  "service_unavailable",
  "deadline_exceeded",
  "unexpected_error",
]);
