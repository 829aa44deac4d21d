import type fc from "fast-check";
import { toBody } from "../../support/clients/messages.js";
import { type ProtocolName, type RawRequest, toRawRequest } from "../../support/clients/raw-request.js";
import { toProto, toProtoJson } from "./encode.js";
import { jsonText } from "./json-text.js";
import { bodyFieldOf, type Operation } from "./operations.js";
import { type Request, type Resolve, resolved, type Template } from "./request.js";

/** A kind of input: how it deviates, the protocols that can carry it, and the expected response. */
export interface Kind {
  readonly name: string;
  /** Relative frequency. Default 10. */
  readonly weight?: number;
  readonly protocols: readonly ProtocolName[];
  /** Whether this kind exists for an operation. Default true. */
  applies?(operation: Operation): boolean;
  make(operation: Operation, protocol: ProtocolName): fc.Arbitrary<Draft>;
}

/** An input that becomes concrete once its references can be resolved. */
export type Draft = (context: CaseContext) => Input;

/** The credential and the references for a concrete input. */
export interface CaseContext {
  readonly credential: string;
  readonly resolve: Resolve;
}

/** A concrete input and its expected result. */
export interface Input {
  readonly raw: RawRequest;
  /** `valid`: the input must not be refused as malformed. `invalid`: it must be. */
  readonly form: "valid" | "invalid" | "either";
  /** Error codes that are allowed for invalid input. Default `application/invalid_input`. */
  readonly codes?: readonly string[];
  /** A prefix of the location that the error must name. */
  readonly location?: string;
  /** Whether the input may contain a deadline, which may then be exceeded. */
  readonly isTimed?: boolean;
  /** A HEAD request, whose response must equal that of the input except for the body. */
  readonly headRequest?: RawRequest;
  /** A retry after success. It must return the same response and change nothing. */
  readonly retry?: RawRequest;
  /** The values to read back after success. Undefined if they cannot be known. */
  readonly intended?: Request;
}

/** The body of a request in the encoding of a protocol. */
export function encode(protocol: ProtocolName, operation: Operation, request: Request): Buffer {
  const { rpc } = operation;
  if (protocol === "http") return Buffer.from(jsonText(toBody(request, bodyFieldOf(operation))));
  return protocol === "connect" ? Buffer.from(jsonText(toProtoJson(rpc.input, request))) : toProto(rpc.input, request);
}

/** The expectation with the location of an error in the body that is sent: `body[0].name` for `limits[0].name`. */
export function located<Expectation extends Omit<Input, "raw">>(
  protocol: ProtocolName,
  operation: Operation,
  expectation: Expectation,
): Expectation {
  const bodyField = protocol === "http" ? bodyFieldOf(operation) : undefined;
  const { location } = expectation;
  if (bodyField === undefined || !location?.startsWith(bodyField)) return expectation;
  return { ...expectation, location: `body${location.slice(bodyField.length)}` };
}

/** A draft that sends a request unchanged. */
export function asIs(
  operation: Operation,
  protocol: ProtocolName,
  template: Template,
  expectation: Omit<Input, "raw">,
): Draft {
  return ({ credential, resolve }) => {
    const request = resolved(template, resolve);
    const intended = expectation.form === "valid" ? { intended: request } : {};
    return {
      raw: toRawRequest(protocol, operation, credential, encode(protocol, operation, request)),
      ...intended,
      ...located(protocol, operation, expectation),
    };
  };
}

/** A draft that sends a corrupted body in place of a valid one. */
export function corrupted(
  operation: Operation,
  protocol: ProtocolName,
  template: Template,
  corrupt: (validBody: Buffer) => Buffer,
  expectation: Omit<Input, "raw">,
): Draft {
  return ({ credential, resolve }) => {
    const body = corrupt(encode(protocol, operation, resolved(template, resolve)));
    return { raw: toRawRequest(protocol, operation, credential, body), ...located(protocol, operation, expectation) };
  };
}
