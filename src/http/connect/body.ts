import {
  type DescField,
  type DescMessage,
  fromJson,
  type JsonObject,
  type JsonValue,
  ScalarType,
} from "@bufbuild/protobuf";
import { type FieldError, invalidInput, isEnough, payloadTooLarge, unsupportedCompression } from "../../errors.js";
import { readBinary } from "../../rpc/decode-binary.js";
import { maxItemsOf, tooManyItems } from "../../rpc/message-limits.js";
import { maxMessageBytes } from "../../rpc/pipeline.js";
import { parseStrictJson } from "../json/strict-json.js";

/** The encoding of a body: bare, or in a gRPC-Web frame. */
export interface BodyFormat {
  readonly framed: boolean;
  readonly codec: "json" | "proto";
}

/**
 * Refuses a body that Connect could not decode, before Connect reads it. Connect's own error would name internal types
 * and have none of our error details.
 */
export function refuseUndecodable(schema: DescMessage, { framed, codec }: BodyFormat, body: Buffer): void {
  const message = framed ? unframe(body) : body;
  if (codec === "json") refuseBadJson(schema, message);
  else readBinary(schema, message);
}

/**
 * Refuses compressed requests: a few bytes could decompress to a message of the maximum size, and compression does not
 * help any request.
 *
 * @param headers of the request
 */
export function refuseCompressed({ framed }: BodyFormat, headers: NodeJS.Dict<string | string[]>): void {
  const header = framed ? "grpc-encoding" : "content-encoding";
  const encoding = headers[header] ?? "identity";
  if (String(encoding).toLowerCase() !== "identity") throw unsupportedCompression(header);
}

/** gRPC-Web puts one byte of flags and four bytes of length before the message. A unary call has one message. */
function unframe(frame: Buffer): Buffer {
  const [flags = -1] = frame;
  if (frame.length < 5 || flags > compressedFlag || flags < 0) throw invalidBody("is not a gRPC-Web message");
  if (flags === compressedFlag) throw unsupportedCompression("grpc-encoding");
  const length = frame.readUInt32BE(1);
  if (length > maxMessageBytes) throw payloadTooLarge("body", maxMessageBytes);
  if (length !== frame.length - 5) throw invalidBody("is not exactly one gRPC-Web message");
  return frame.subarray(5);
}

/** The first byte of a frame whose message is compressed. */
const compressedFlag = 1;

function refuseBadJson(schema: DescMessage, body: Buffer): void {
  const json = parseStrictJson(body) as JsonValue;
  if (typeof json !== "object" || json === null || Array.isArray(json)) throw invalidBody("must be a JSON object");
  if (isDecodable(schema, json)) return;
  const errors: FieldError[] = [];
  for (const [name, value] of Object.entries(json)) {
    if (!isEnough(errors)) collectFieldErrors(schema, name, value, errors);
  }
  throw errors.length > 0 ? invalidInput(errors) : invalidBody("has mutually exclusive fields");
}

/**
 * Decodes each field, and each list item, by itself. This finds all errors at once and reports them under the names
 * that the caller used. The message states the type of the field. Connect's own message quotes the value, which may be
 * a secret in the wrong field.
 */
function collectFieldErrors(schema: DescMessage, name: string, value: JsonValue, errors: FieldError[]): void {
  const field = schema.fields.find(({ jsonName, name: protoName }) => name === jsonName || name === protoName);
  if (field === undefined) {
    errors.push({ location: name, message: "is not a known field" });
    return;
  }
  const items = field.fieldKind === "list" && Array.isArray(value) ? value : [];
  const maxItems = maxItemsOf(field) ?? items.length;
  if (items.length > maxItems) {
    errors.push({ location: name, message: tooManyItems(maxItems) });
    return;
  }
  const itemParts: [string, JsonValue][] = items.map((item, index) => [`${name}[${index}]`, [item]]);
  for (const [location, part] of itemParts.length > 0 ? itemParts : [[name, value] as const]) {
    if (isEnough(errors)) return;
    if (isDecodable(schema, { [name]: part })) continue;
    errors.push({ location, message: `cannot be read as ${typeNameOf(field)}` });
  }
}

function typeNameOf(field: DescField): string {
  const kind = field.message?.typeName ?? field.enum?.typeName;
  return kind ?? (field.scalar === undefined ? "documented" : ScalarType[field.scalar].toLowerCase());
}

function isDecodable(schema: DescMessage, json: JsonObject): boolean {
  try {
    fromJson(schema, json);
    return true;
  } catch {
    return false;
  }
}

function invalidBody(message: string) {
  return invalidInput([{ location: "body", message }]);
}
