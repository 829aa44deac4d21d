import {
  type DescField,
  type DescMessage,
  type JsonObject,
  type JsonValue,
  type Message,
  ScalarType,
} from "@bufbuild/protobuf";
import type { Path } from "@bufbuild/protobuf/reflect";
import { StructSchema, type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { createValidator } from "@bufbuild/protovalidate";
import { type FieldError, invalidInput } from "../errors.js";
import { compilePlainlyValid } from "./plainly-valid.js";

/** Judges a request by its schema; throws `invalid_input` with every bad field named. */
export type Validate = (schema: DescMessage, message: Message) => void;

/**
 * The one judge behind all doors. A message is held against what no rule can say (text and JSON must be storable, times
 * must exist), then against its protovalidate rules. The schemas are prepared here, so that no call pays for it.
 */
export function createValidate(schemas: readonly DescMessage[]): Validate {
  const validator = createValidator();
  const judges = new Map(
    schemas.map((schema) => [
      schema,
      { checks: schema.fields.map(checkOf), isPlainlyValid: compilePlainlyValid(schema) },
    ]),
  );
  for (const schema of schemas) validator.validate(schema, { $typeName: schema.typeName } as Message);

  return (schema, message) => {
    const judge = judges.get(schema);
    if (judge === undefined) throw new Error(`${schema} was not prepared`);
    const errors: FieldError[] = [];
    for (const check of judge.checks) check(message, errors);
    // Some rules would stumble over what the checks refuse, so they only see what passed.
    if (errors.length === 0 && !judge.isPlainlyValid(message)) findBrokenRules(schema, message, errors);
    if (errors.length > 0) throw invalidInput(errors);
  };

  function findBrokenRules(schema: DescMessage, message: Message, errors: FieldError[]): void {
    const result = validator.validate(schema, message);
    if (result.kind === "error") throw result.error;
    for (const { field, message } of result.violations ?? []) {
      errors.push({
        location: locationOf(field),
        message: field.at(-1)?.kind === "oneof" ? "must be given: exactly one of them" : message,
      });
    }
  }
}

/** Adds what is wrong with a message, if anything is. */
type Check = (message: Message, errors: FieldError[]) => void;

/** Compiles the check of one field: which problem does its value have, if any? */
function checkOf(field: DescField): Check {
  const location = field.jsonName;
  const read = readerOf(field);
  const problemOf = problemFinders.find(({ applies }) => applies(field))?.problemOf;
  if (problemOf === undefined) return () => {};

  const checkValue = (value: unknown, index: number | undefined, errors: FieldError[]) => {
    const problem = problemOf(value as never);
    if (problem === undefined) return;
    errors.push({ location: index === undefined ? location : `${location}[${index}]`, message: problem });
  };
  return (message, errors) => {
    const value = read(message);
    if (Array.isArray(value)) for (const [index, item] of value.entries()) checkValue(item, index, errors);
    else if (value !== undefined) checkValue(value, undefined, errors);
  };
}

const problemFinders: { applies(field: DescField): boolean; problemOf(value: never): string | undefined }[] = [
  { applies: (field) => field.scalar === ScalarType.STRING, problemOf: problemOfText },
  {
    applies: (field) => field.message?.typeName === StructSchema.typeName,
    problemOf: problemOfMeta,
  },
  { applies: (field) => field.message?.typeName === TimestampSchema.typeName, problemOf: problemOfTime },
];

/** PostgreSQL cannot hold NUL, and would silently replace half a surrogate pair. */
function problemOfText(text: string): string | undefined {
  if (text.includes("\0")) return "must not contain the character U+0000";
  if (!text.isWellFormed()) return "must be well-formed Unicode, without lone surrogates";
  return undefined;
}

/** Lists show up to 100 of them, with those of their identities: an answer must stay of a size that clients read. */
const largestJson = 16 * 1024;

function problemOfMeta(value: JsonObject): string | undefined {
  const problem = problemOfJson(value, 1);
  if (problem !== undefined) return problem;
  return Buffer.byteLength(JSON.stringify(value)) > largestJson ? "must not be larger than 16 KiB as JSON" : undefined;
}

/** All doors and every reader of JSON manage 32 levels; protobuf readers differ beyond. */
function problemOfJson(value: JsonValue, depth: number): string | undefined {
  if (typeof value === "string") return problemOfText(value);
  if (typeof value === "number") return Number.isFinite(value) ? undefined : "must contain only finite numbers";
  if (typeof value !== "object" || value === null) return undefined;
  if (depth > 32) return "must not nest deeper than 32 levels";
  for (const [key, item] of Object.entries(value)) {
    const problem = problemOfText(key) ?? problemOfJson(item, depth + 1);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** A Timestamp covers the years 1 to 9999; over gRPC any number can arrive. */
function problemOfTime({ seconds, nanos }: Timestamp): string | undefined {
  const exists = seconds >= -62_135_596_800n && seconds <= 253_402_300_799n && nanos >= 0 && nanos <= 999_999_999;
  return exists ? undefined : "must be a time between the years 1 and 9999";
}

function readerOf({ localName, oneof }: DescField) {
  return (message: Message): unknown => {
    const members = message as unknown as Record<string, unknown>;
    if (oneof === undefined) return members[localName];
    const chosen = members[oneof.localName] as { case?: string; value?: unknown };
    return chosen.case === localName ? chosen.value : undefined;
  };
}

/** The path as callers write it: `permissions[0]`. A oneof is named by its members. */
function locationOf(path: Path): string {
  const location = path.map((part) => {
    if (part.kind === "field") return `.${part.jsonName}`;
    if (part.kind === "oneof") return `.${part.fields.map((field) => field.jsonName).join("|")}`;
    return part.kind === "list_sub" ? `[${part.index}]` : "";
  });
  return location.join("").replace(/^\./, "") || "body";
}
