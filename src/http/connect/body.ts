import type { IncomingMessage } from "node:http";
import {
  type DescField,
  type DescMessage,
  fromJson,
  type JsonObject,
  type JsonValue,
  type Message,
  ScalarType,
  toBinary,
  toJsonString,
} from "@bufbuild/protobuf";
import { type FieldError, invalidInput, isEnough, payloadTooLarge, unsupportedCompression } from "../../errors.js";
import { readBinary } from "../../rpc/decode-binary.js";
import { maxItemsOf, nestedMessageOf, repeated, tooManyItems } from "../../rpc/message-limits.js";
import { maxMessageBytes } from "../../rpc/pipeline.js";
import { shapeOfMessage } from "../json/shape.js";
import { parseStrictJson } from "../json/strict-json.js";

/** The encoding of a body: bare, or in a gRPC-Web frame. */
export interface BodyFormat {
  readonly framed: boolean;
  readonly codec: "json" | "proto";
}

/** The content types of both protocols. JSON is UTF-8, with or without a charset parameter. */
const contentTypes = /^application\/(?:(grpc-web)|(grpc-web\+)?(?:proto|(json)(?:; ?charset=utf-?8)?))$/i;

/** The format of the body of an RPC; undefined if its content type belongs to none of the RPC protocols. */
export function formatOf({ headers }: Pick<IncomingMessage, "headers">): BodyFormat | undefined {
  const [match, grpcWeb, grpcWebPrefix, json] = contentTypes.exec(headers["content-type"] ?? "") ?? [];
  if (match === undefined) return undefined;
  return { framed: (grpcWeb ?? grpcWebPrefix) !== undefined, codec: json === undefined ? "proto" : "json" };
}

/** Decodes a request. Throws `invalid_input` if it is malformed or exceeds the limits of a request. */
export function decodeBody(schema: DescMessage, { framed, codec }: BodyFormat, body: Buffer): Message {
  const message = framed ? unframe(body) : body;
  return codec === "json" ? readJson(schema, message) : readBinary(schema, message);
}

/** The content type of a response. */
export function contentTypeOf({ framed, codec }: BodyFormat): string {
  return `application/${framed ? "grpc-web+" : ""}${codec}`;
}

/** Encodes a response. gRPC-Web has its trailers in a second frame. */
export function encodeBody(schema: DescMessage, { framed, codec }: BodyFormat, message: Message): Buffer {
  const bytes = codec === "json" ? Buffer.from(toJsonString(schema, message)) : Buffer.from(toBinary(schema, message));
  return framed ? Buffer.concat([prefix(0, bytes), bytes, succeeded]) : bytes;
}

/**
 * Refuses compressed requests: a few bytes could decompress to a message of the maximum size, and compression does not
 * help any request.
 *
 * @param headers of the request
 */
export function refuseCompressed({ framed }: BodyFormat, headers: IncomingMessage["headers"]): void {
  const header = framed ? "grpc-encoding" : "content-encoding";
  const encoding = headers[header] ?? "identity";
  if (String(encoding).toLowerCase() !== "identity") throw unsupportedCompression(header);
}

/** The first byte of a frame: its message is compressed, or it contains trailers. */
const compressedFlag = 1;
const trailersFlag = 0x80;

function prefix(flags: number, { length }: Buffer): Buffer {
  const bytes = Buffer.of(flags, 0, 0, 0, 0);
  bytes.writeUInt32BE(length, 1);
  return bytes;
}

const okTrailers = Buffer.from("grpc-status: 0\r\n");
const succeeded = Buffer.concat([prefix(trailersFlag, okTrailers), okTrailers]);

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

function readJson(schema: DescMessage, body: Buffer): Message {
  const json = parseStrictJson(body, shapeOfMessage(schema)) as JsonValue;
  if (!isObject(json)) throw invalidBody("must be a JSON object");
  const message = decodeJson(schema, json);
  if (message !== undefined) return message;
  const errors: FieldError[] = [];
  collectErrors(schema, json, "", errors);
  throw invalidInput(errors);
}

/**
 * Decodes each field, and each list item, by itself. This finds all errors at once and reports them under the names
 * that the caller used. The message states the type of the field. That of the decoder quotes the value, which may be a
 * secret in the wrong field.
 *
 * @param json of a message that cannot be decoded
 * @param path the location of the message; empty for the request itself
 */
function collectErrors(schema: DescMessage, json: JsonObject, path: string, errors: FieldError[]): void {
  const countBefore = errors.length;
  const given = new Set<DescField>();
  for (const [name, value] of Object.entries(json)) {
    if (isEnough(errors)) return;
    const location = path === "" ? name : `${path}.${name}`;
    const field = schema.fields.find(({ jsonName, name: protoName }) => name === jsonName || name === protoName);
    if (field === undefined) errors.push({ location, message: "is not a known field" });
    else if (given.has(field)) errors.push({ location, message: repeated });
    else collectFieldErrors(schema, field, name, value, location, errors);
    if (field !== undefined) given.add(field);
  }
  if (errors.length === countBefore)
    errors.push({ location: path || "body", message: "has mutually exclusive fields" });
}

function collectFieldErrors(
  schema: DescMessage,
  field: DescField,
  name: string,
  value: JsonValue,
  location: string,
  errors: FieldError[],
): void {
  const items = field.fieldKind === "list" && Array.isArray(value) ? value : [];
  const maxItems = maxItemsOf(field) ?? items.length;
  if (items.length > maxItems) {
    errors.push({ location, message: tooManyItems(maxItems) });
    return;
  }
  const nested = nestedMessageOf(field);
  const itemParts = items.map((item, index): Part => [`${location}[${index}]`, item, [item]]);
  const parts: Part[] = itemParts.length > 0 ? itemParts : [[location, value, value]];
  for (const [partLocation, part, given] of parts) {
    if (isEnough(errors)) return;
    if (decodeJson(schema, { [name]: given }) !== undefined) continue;
    if (nested !== undefined && isObject(part)) collectErrors(nested, part, partLocation, errors);
    else errors.push({ location: partLocation, message: `cannot be read as ${typeNameOf(field)}` });
  }
}

/** A field or an item: its location, its value, and the field with only this value. */
type Part = [location: string, value: JsonValue, field: JsonValue];

function isObject(json: JsonValue): json is JsonObject {
  return typeof json === "object" && json !== null && !Array.isArray(json);
}

function typeNameOf(field: DescField): string {
  const kind = field.message?.typeName ?? field.enum?.typeName;
  return kind ?? (field.scalar === undefined ? "documented" : ScalarType[field.scalar].toLowerCase());
}

/** Undefined if it has an unknown field, or a value of another type. */
function decodeJson(schema: DescMessage, json: JsonObject): Message | undefined {
  try {
    return fromJson(schema, json);
  } catch {
    return undefined;
  }
}

function invalidBody(message: string) {
  return invalidInput([{ location: "body", message }]);
}
