import type { OperationName } from "../operations.js";
import type { CallerCredential, HeaderLines } from "./headers.js";
import type { Outcome } from "./outcome.js";

/** A request with HTTP's names, timestamps and enum names. */
export type CallRequest = Readonly<Record<string, unknown>>;

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
