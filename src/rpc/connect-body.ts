import { promisify } from "node:util";
import { brotliDecompress, gunzip } from "node:zlib";
import {
  type DescField,
  type DescMessage,
  fromJson,
  type JsonObject,
  type JsonValue,
  ScalarType,
} from "@bufbuild/protobuf";
import { type FieldError, invalidInput, isEnough, payloadTooLarge } from "../errors.js";
import { mostItemsOf, tooManyItems } from "./bounds.js";
import { largestMessage } from "./pipeline.js";
import { readBinary } from "./read-binary.js";
import { readJson } from "./read-json.js";

/** How a body is encoded: alone, or in a frame of gRPC-Web. */
export interface BodyFormat {
  readonly framed: boolean;
  readonly codec: "json" | "proto";
}

/**
 * Refuses a body that Connect could not decode, before Connect sees it: Connect's own refusal would name internal types
 * and carry none of our details.
 */
export async function refuseUndecodable(
  schema: DescMessage,
  { framed, codec }: BodyFormat,
  headers: NodeJS.Dict<string | string[]>,
  body: Buffer,
): Promise<void> {
  const message = framed
    ? await expand("grpc-encoding", headers, messageIn(body), body[0] === compressedFlag)
    : await expand("content-encoding", headers, body, body.length > 0);
  if (codec === "json") refuseBadJson(schema, message);
  else readBinary(schema, message);
}

/** The first byte of a frame whose message is compressed. */
const compressedFlag = 1;

/** gRPC-Web puts one byte of flags and four of length before the message. A unary call has one message. */
function messageIn(frame: Buffer): Buffer {
  const [flags = -1] = frame;
  if (frame.length < 5 || flags > compressedFlag || flags < 0) throw inBody("is not a gRPC-Web message");
  const length = frame.readUInt32BE(1);
  if (length > largestMessage) throw payloadTooLarge("body", largestMessage);
  if (length !== frame.length - 5) throw inBody("is not exactly one gRPC-Web message");
  return frame.subarray(5);
}

const expanders = { gzip: promisify(gunzip), br: promisify(brotliDecompress) };

async function expand(
  header: string,
  headers: NodeJS.Dict<string | string[]>,
  body: Buffer,
  isCompressed: boolean,
): Promise<Buffer> {
  const encoding = String(headers[header] ?? "identity");
  const expander = Object.hasOwn(expanders, encoding) ? expanders[encoding as keyof typeof expanders] : undefined;
  if (expander === undefined && encoding !== "identity") {
    throw invalidInput([{ location: header, message: `can only be ${Object.keys(expanders).join(", ")} or identity` }]);
  }
  if (!isCompressed) return body;
  if (expander === undefined) {
    if (header === "grpc-encoding")
      throw invalidInput([{ location: header, message: "must say how it is compressed" }]);
    return body;
  }
  return expander(body, { maxOutputLength: largestMessage }).catch((error) => {
    if (error.code === "ERR_BUFFER_TOO_LARGE") throw payloadTooLarge("body", largestMessage);
    throw inBody(`is not compressed as ${encoding}`);
  });
}

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
  const mostItems = mostItemsOf(field) ?? items.length;
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
