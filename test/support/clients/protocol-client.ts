import type { OperationName } from "../../contract/operations.js";
import type { Outcome } from "../../contract/outcome.js";

/** A key's secret or the operator's credential, or the bare values of the Authorization headers; `[]` sends none. */
export type CallerCredential = string | readonly string[];

/** A request in the names, times and enum names of HTTP. */
export type CallRequest = Readonly<Record<string, unknown>>;

/** Headers, or metadata, to send beside the credential; a name may come twice. */
export type HeaderLines = readonly (readonly [name: string, value: string])[];

/** The protocols by name. Connect is spoken in JSON, as browsers do; gRPC-Web in binary. */
export type ProtocolName = "grpc" | "http" | "connect" | "grpc-web";

/** One way into the service, by a real client. */
export interface ProtocolClient {
  readonly name: ProtocolName;
  /** Calls, checks everything about the answer that holds for every answer of this protocol, and says how it ended. */
  call(
    operation: OperationName,
    credential: CallerCredential,
    request: CallRequest,
    headers?: HeaderLines,
  ): Promise<Outcome>;
  close(): void;
}

/** All headers of a call: those that a credential means, and more. */
export function headersOf(credential: CallerCredential, more: HeaderLines = []): [name: string, value: string][] {
  const authorization = typeof credential === "string" ? [`Bearer ${credential}`] : credential;
  return [...authorization.map((value) => ["authorization", value] as const), ...more].map(([...line]) => line);
}
