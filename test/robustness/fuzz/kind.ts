import type fc from "fast-check";
import { toProto, toProtoJson } from "./encode.js";
import { jsonText } from "./json-text.js";
import type { Operation } from "./operations.js";
import { type Request, type Resolve, resolved, type Template } from "./request.js";
import { type ProtocolName, type Sent, sentTo } from "./sent.js";

/** A kind of input: what is odd about it, where it can be sent, and how it must be answered. */
export interface Kind {
  readonly name: string;
  /** How often it comes, relative to others; 10 unless told. */
  readonly weight?: number;
  readonly protocols: readonly ProtocolName[];
  /** Whether there is such input for an operation; yes, unless told. */
  applies?(operation: Operation): boolean;
  make(operation: Operation, protocol: ProtocolName): fc.Arbitrary<Draft>;
}

/** Input that can be sent once it is known what there is to refer to. */
export type Draft = (means: Means) => Input;

/** What an input is made with. */
export interface Means {
  readonly credential: string;
  readonly resolve: Resolve;
}

/** Input, and what must come of it. */
export interface Input {
  readonly sent: Sent;
  /** `sound`: it is not refused for its form. `unsound`: it is. */
  readonly form: "sound" | "unsound" | "either";
  /** With which failures something unsound can be refused; `application/invalid_input` unless told. */
  readonly codes?: readonly string[];
  /** What must be named as wrong, or the beginning of that. */
  readonly location?: string;
  /** Whether it may bring a deadline, which then may pass. */
  readonly isTimed?: boolean;
  /** What must be answered alike, but for the body. */
  readonly head?: Sent;
  /** What must be answered with the same once it is accepted, and change nothing. */
  readonly again?: Sent;
  /** What is to be read back if it is accepted; undefined if that cannot be said. */
  readonly meant?: Request;
}

/** The body of a request, as a protocol wants it. */
export function encode(protocol: ProtocolName, { rpc }: Operation, request: Request): Buffer {
  if (protocol === "http") return Buffer.from(jsonText(request));
  return protocol === "connect" ? Buffer.from(jsonText(toProtoJson(rpc.input, request))) : toProto(rpc.input, request);
}

/** A draft that sends a request whole, with what is to come of it. */
export function asIs(
  operation: Operation,
  protocol: ProtocolName,
  template: Template,
  more: Omit<Input, "sent">,
): Draft {
  return ({ credential, resolve }) => {
    const request = resolved(template, resolve);
    const meant = more.form === "sound" ? { meant: request } : {};
    return { sent: sentTo(protocol, operation, credential, encode(protocol, operation, request)), ...meant, ...more };
  };
}

/** A draft that sends something else in place of a good body. */
export function spoilt(
  operation: Operation,
  protocol: ProtocolName,
  template: Template,
  spoil: (good: Buffer) => Buffer,
  more: Omit<Input, "sent">,
): Draft {
  return ({ credential, resolve }) => {
    const body = spoil(encode(protocol, operation, resolved(template, resolve)));
    return { sent: sentTo(protocol, operation, credential, body), ...more };
  };
}
