import type { DescField, DescMessage, JsonObject, JsonValue, Message } from "@bufbuild/protobuf";
import type { Path } from "@bufbuild/protobuf/reflect";
import { type FieldMask, FieldMaskSchema, StructSchema, type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { createValidator } from "@bufbuild/protovalidate";
import { type FieldError, invalidInput } from "../errors.js";
import { compileLengthRules } from "./length-rules.js";
import {
  maxDepth,
  maxFieldBytes,
  maxItemsOf,
  maxLengthOf,
  tooDeep,
  tooLarge,
  tooLong,
  tooManyItems,
} from "./message-limits.js";

/** Validates requests by their schema; throws `invalid_input` with the bad fields named. */
export interface Validate {
  /** Refuses what can never be right: more than there may be, or what cannot be stored. Comes before all other work. */
  form(schema: DescMessage, message: Message): void;
  /** Refuses what breaks a rule of the proto file. What is right can become wrong with time: `expires` in the past. */
  rules(schema: DescMessage, message: Message): void;
}

/**
 * The one validation behind all protocols. The form of a message is what no rule can say (text and JSON must be storable,
 * times must exist) and what bounds the work of the rules; they then see nothing that they would take long to look at, or
 * stumble over. The schemas are prepared here, so that no call pays for it.
 */
export function createValidate(schemas: readonly DescMessage[]): Validate {
  const validator = createValidator();
  const prepared = new Map(
    schemas.map((schema) => [
      schema,
      { checks: schema.fields.map(checkOf), isPlainlyValid: compileLengthRules(schema) },
    ]),
  );
  for (const schema of schemas) validator.validate(schema, { $typeName: schema.typeName } as Message);

  function checksOf(schema: DescMessage) {
    const checks = prepared.get(schema);
    if (checks === undefined) throw new Error(`${schema} was not prepared`);
    return checks;
  }

  return {
    form(schema, message) {
      const errors: FieldError[] = [];
      for (const check of checksOf(schema).checks) check(message, errors);
      if (errors.length > 0) throw invalidInput(errors);
    },
    rules(schema, message) {
      if (checksOf(schema).isPlainlyValid(message)) return;
      const errors = findBrokenRules(schema, message);
      if (errors.length > 0) throw invalidInput(errors);
    },
  };

  function findBrokenRules(schema: DescMessage, message: Message): FieldError[] {
    const result = validator.validate(schema, message);
    if (result.kind === "error") throw result.error;
    return (result.violations ?? []).map(({ field, message }) => ({
      location: locationOf(field),
      message: field.at(-1)?.kind === "oneof" ? "must be given: exactly one of them" : message,
    }));
  }
}

/** Adds what is wrong with a message, if anything is. */
type Check = (message: Message, errors: FieldError[]) => void;

/** Compiles the check of one field: which problem does its value have, if any? */
function checkOf(field: DescField): Check {
  const location = field.jsonName;
  const read = readerOf(field);
  const problemOf = problemFinderOf(field);
  const mostItems = field.fieldKind === "list" ? maxItemsOf(field) : undefined;

  const checkValue = (value: unknown, index: number | undefined, errors: FieldError[]) => {
    const problem = problemOf(value as never);
    if (problem === undefined) return;
    errors.push({ location: index === undefined ? location : `${location}[${index}]`, message: problem });
  };
  return (message, errors) => {
    const value = read(message);
    if (value === undefined) return;
    if (!Array.isArray(value) || mostItems === undefined) checkValue(value, undefined, errors);
    else if (value.length > mostItems) errors.push({ location, message: tooManyItems(mostItems) });
    else for (const [index, item] of value.entries()) checkValue(item, index, errors);
  };
}

type ProblemOf = (value: never) => string | undefined;

/** Finds the problem of a field's value, or of an item's if it is a list. */
function problemFinderOf(field: DescField): ProblemOf {
  const longest = maxLengthOf(field);
  if (longest !== undefined) return problemOfText(longest);
  const typeName = field.message?.typeName;
  if (typeName === FieldMaskSchema.typeName) return problemOfMask(maxItemsOf(field));
  return (typeName !== undefined && problemFinders[typeName]) || (() => undefined);
}

const problemFinders: Readonly<Record<string, ProblemOf>> = {
  [StructSchema.typeName]: problemOfMeta,
  [TimestampSchema.typeName]: problemOfTime,
};

/** Rules count characters, of which each has at most two units of UTF-16, and take long to do so. */
function problemOfText(longest: number): (text: string) => string | undefined {
  return (text) => (text.length > 2 * longest ? tooLong(longest) : problemOfCharacters(text));
}

/** PostgreSQL cannot hold NUL, and would silently replace half a surrogate pair. */
function problemOfCharacters(text: string): string | undefined {
  if (text.includes("\0")) return "must not contain the character U+0000";
  if (!text.isWellFormed()) return "must be well-formed Unicode, without lone surrogates";
  return undefined;
}

function problemOfMask(most = 0): (mask: FieldMask) => string | undefined {
  return ({ paths }) => (paths.length > most ? `can name at most ${most} fields` : undefined);
}

function problemOfMeta(value: JsonObject): string | undefined {
  const problem = problemOfJson(value, 1);
  if (problem !== undefined) return problem;
  return Buffer.byteLength(JSON.stringify(value)) > maxFieldBytes ? tooLarge : undefined;
}

function problemOfJson(value: JsonValue, depth: number): string | undefined {
  if (typeof value === "string") return problemOfCharacters(value);
  if (typeof value === "number") return Number.isFinite(value) ? undefined : "must contain only finite numbers";
  if (typeof value !== "object" || value === null) return undefined;
  if (depth > maxDepth) return tooDeep;
  for (const [key, item] of Object.entries(value)) {
    const problem = problemOfCharacters(key) ?? problemOfJson(item, depth + 1);
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
