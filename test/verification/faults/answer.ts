import type { Request } from "./request.js";

/** How a call ended, as its caller saw it. */
export type Answer =
  /** Admitted and answered, with the fields of the response. */
  | { readonly kind: "success"; readonly fields: Readonly<Record<string, unknown>> }
  /** An error of the catalogue, by its code in lower case, such as `workspace_disabled`. */
  | { readonly kind: "refused"; readonly code: string }
  /** No judgement: 503, 504, a timeout or a broken connection. What the call was to change may have changed. */
  | { readonly kind: "unavailable"; readonly why: string }
  /** The replica could not even be reached, so nothing can have changed. */
  | { readonly kind: "unsent" };

/** A way into one replica. */
export interface ProtocolClient {
  readonly name: "grpc" | "http" | "connect";
  call(request: Request, done: (answer: Answer) => void): void;
  close(): void;
}

/** How long a caller waits. */
export const patienceMs = 2_500;

/** Refusals that judge nothing: the service says that it could not. */
export const withoutJudgement: ReadonlySet<string> = new Set([
  "service_unavailable",
  "deadline_exceeded",
  "unexpected_error",
]);
