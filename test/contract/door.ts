import type { OperationName } from "./operations.js";
import type { Outcome } from "./outcome.js";

/** A key's secret or the operator's credential, or the bare values of the Authorization headers; `[]` sends none. */
export type CallerCredential = string | readonly string[];

/** A request in the names, times and enum names of HTTP. */
export type CallRequest = Readonly<Record<string, unknown>>;

/** The doors by name. Connect is spoken in JSON, as browsers do; gRPC-Web in binary. */
export type DoorName = "grpc" | "http" | "connect" | "grpc-web";

/** One way into the service, by a real client. */
export interface Door {
  readonly name: DoorName;
  /** Calls, checks everything about the answer that holds for every answer of this door, and says how it ended. */
  call(operation: OperationName, credential: CallerCredential, request: CallRequest): Promise<Outcome>;
  close(): void;
}

/** The values of the Authorization headers that a credential means. */
export function authorizationOf(credential: CallerCredential): readonly string[] {
  return typeof credential === "string" ? [`Bearer ${credential}`] : credential;
}
