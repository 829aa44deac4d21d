import type { OperationName } from "../operations.js";
import type { Outcome } from "./outcome.js";

/** A key's secret, the operator's credential, or the raw values of the Authorization headers; `[]` sends none. */
export type CallerCredential = string | readonly string[];

/** A request with HTTP's names, timestamps and enum names. */
export type CallRequest = Readonly<Record<string, unknown>>;

/** Headers, or metadata, to send besides the credential. A name may occur twice. */
export type HeaderLines = readonly (readonly [name: string, value: string])[];

/** The protocols by name. Connect uses JSON, as browsers do; gRPC-Web uses binary messages. */
export type ProtocolName = "grpc" | "http" | "connect" | "grpc-web";

/** A real client of one protocol. */
export interface ProtocolClient {
  readonly name: ProtocolName;
  /** Calls, checks everything that holds for every response of this protocol, and returns the outcome. */
  call(
    operation: OperationName,
    credential: CallerCredential,
    request: CallRequest,
    headers?: HeaderLines,
  ): Promise<Outcome>;
  close(): void;
}

/** All headers of a call: those of the credential, and further ones. */
export function headersOf(credential: CallerCredential, more: HeaderLines = []): [name: string, value: string][] {
  const authorization = typeof credential === "string" ? [`Bearer ${credential}`] : credential;
  return [...authorization.map((value) => ["authorization", value] as const), ...more].map(([...line]) => line);
}
