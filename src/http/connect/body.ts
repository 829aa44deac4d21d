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
import { readJson } from "../json/strict-json.js";

/** How a body is encoded: alone, or in a frame of gRPC-Web. */
export interface BodyFormat {
  readonly framed: boolean;
  readonly codec: "json" | "proto";
}

/**
 * Refuses a body that Connect could not decode, before Connect sees it: Connect's own refusal would name internal types
 * and carry none of our details.
 */
export function refuseUndecodable(schema: DescMessage, { framed, codec }: BodyFormat, body: Buffer): void {
  const message = framed ? messageIn(body) : body;
  if (codec === "json") refuseBadJson(schema, message);
  else readBinary(schema, message);
}

/**
 * Refuses compressed requests: a few bytes could become as many as a message may have, and no request gains by it.
 *
 * @param headers of the request
 */
export function refuseCompressed({ framed }: BodyFormat, headers: NodeJS.Dict<string | string[]>): void {
  const header = framed ? "grpc-encoding" : "content-encoding";
  const encoding = headers[header] ?? "identity";
  if (String(encoding).toLowerCase() !== "identity") throw unsupportedCompression(header);
}

/** gRPC-Web puts one byte of flags and four of length before the message. A unary call has one message. */
function messageIn(frame: Buffer): Buffer {
  const [flags = -1] = frame;
  if (frame.length < 5 || flags > compressedFlag || flags < 0) throw inBody("is not a gRPC-Web message");
  if (flags === compressedFlag) throw unsupportedCompression("grpc-encoding");
  const length = frame.readUInt32BE(1);
  if (length > maxMessageBytes) throw payloadTooLarge("body", maxMessageBytes);
  if (length !== frame.length - 5) throw inBody("is not exactly one gRPC-Web message");
  return frame.subarray(5);
}

/** The first byte of a frame whose message is compressed. */
const compressedFlag = 1;

function refuseBadJson(schema: DescMessage, body: Buffer): void {
  const json = readJson(body) as JsonValue;
  if (typeof json !== "object" || json === null || Array.isArray(json)) throw inBody("must be a JSON object");
  if (isReadable(schema, json)) return;
  const errors: FieldError[] = [];
  for (const [name, value] of Object.entries(json)) {
    if (!isEnough(errors)) findMistakes(schema, name, value, errors);
  }
  throw errors.length > 0 ? invalidInput(errors) : inBody("has fields that exclude each other");
}

/**
 * Field by field, and item by item, mistakes are found all at once and by the names that the caller used. They are told
 * by the kind of the field: Connect's own words quote the value, and a secret may stand in the wrong field.
 */
function findMistakes(schema: DescMessage, name: string, value: JsonValue, errors: FieldError[]): void {
  const field = schema.fields.find(({ jsonName, name: protoName }) => name === jsonName || name === protoName);
  if (field === undefined) {
    errors.push({ location: name, message: "is not a known field" });
    return;
  }
  const items = field.fieldKind === "list" && Array.isArray(value) ? value : [];
  const mostItems = maxItemsOf(field) ?? items.length;
  if (items.length > mostItems) {
    errors.push({ location: name, message: tooManyItems(mostItems) });
    return;
  }
  const parts: [string, JsonValue][] = items.map((item, index) => [`${name}[${index}]`, [item]]);
  for (const [location, part] of parts.length > 0 ? parts : [[name, value] as const]) {
    if (isEnough(errors)) return;
    if (isReadable(schema, { [name]: part })) continue;
    errors.push({ location, message: `cannot be read as ${kindOf(field)}` });
  }
}

function kindOf(field: DescField): string {
  const kind = field.message?.typeName ?? field.enum?.typeName;
  return kind ?? (field.scalar === undefined ? "documented" : ScalarType[field.scalar].toLowerCase());
}

function isReadable(schema: DescMessage, json: JsonObject): boolean {
  try {
    fromJson(schema, json);
    return true;
  } catch {
    return false;
  }
}

function inBody(message: string) {
  return invalidInput([{ location: "body", message }]);
}
