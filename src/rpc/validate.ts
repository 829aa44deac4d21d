import type { DescField, DescMessage, JsonObject, JsonValue, Message } from "@bufbuild/protobuf";
import type { Path } from "@bufbuild/protobuf/reflect";
import { type FieldMask, FieldMaskSchema, StructSchema, type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { createValidator } from "@bufbuild/protovalidate";
import { type FieldError, invalidInput, isEnough } from "../errors.js";
import {
  maxDepth,
  maxFieldBytes,
  maxItemsOf,
  maxLengthOf,
  nestedMessageOf,
  tooDeep,
  tooLarge,
  tooLong,
  tooManyItems,
} from "./message-limits.js";
import { matchesRule } from "./rule-pattern.js";
import { compileFastPath } from "./rules-fast-path.js";

/** Validates requests by their schema. Throws `invalid_input`, which names the invalid fields. */
export interface Validate {
  /** Refuses messages that can never be valid: too large, or impossible to store. Runs before all other work. */
  form(schema: DescMessage, message: Message): void;
  /**
   * Refuses messages that violate a rule of the proto file. A valid message can become invalid with time: `expires`
   * must not be in the past.
   */
  rules(schema: DescMessage, message: Message): void;
}

/**
 * The validation that all protocols share. `form` checks conditions that no rule can express (strings and JSON must be
 * storable, times must exist), and bounds the work of the rules. The rules then never see a message that takes them
 * long or makes them fail. The schemas are compiled here, so that no call pays for it.
 */
export function createValidate(schemas: readonly DescMessage[]): Validate {
  const validator = createValidator({ regexMatch: matchesRule });
  const compiled = new Map(
    schemas.map((schema) => [
      schema,
      { checks: schema.fields.flatMap(checkOf), satisfiesRules: compileFastPath(schema) },
    ]),
  );
  for (const schema of schemas) validator.validate(schema, { $typeName: schema.typeName } as Message);

  function compiledFor(schema: DescMessage) {
    const found = compiled.get(schema);
    if (found === undefined) throw new Error(`${schema} was not compiled`);
    return found;
  }

  return {
    form(schema, message) {
      const errors: FieldError[] = [];
      for (const check of compiledFor(schema).checks) check(message, "", errors);
      if (errors.length > 0) throw invalidInput(errors);
    },
    rules(schema, message) {
      if (compiledFor(schema).satisfiesRules(message)) return;
      const errors = findViolations(schema, message);
      if (errors.length > 0) throw invalidInput(errors);
    },
  };

  function findViolations(schema: DescMessage, message: Message): FieldError[] {
    const result = validator.validate(schema, message);
    if (result.kind === "error") throw result.error;
    const errors: FieldError[] = [];
    for (const { field, message } of result.violations ?? []) {
      if (isEnough(errors)) break;
      const isOneof = field.at(-1)?.kind === "oneof";
      errors.push({ location: locationOf(field), message: isOneof ? "must have exactly one field set" : message });
    }
    return errors;
  }
}

/** Appends the errors of one field of a message. Their locations begin with the prefix, such as `credits.`. */
type Check = (message: Message, prefix: string, errors: FieldError[]) => void;

/** Compiles the check of one field; none if every value of the field is acceptable. */
function checkOf(field: DescField): Check[] {
  const { jsonName } = field;
  const read = readerOf(field);
  const problemOf = problemFinderOf(field);
  const nested = nestedMessageOf(field)?.fields.flatMap(checkOf) ?? [];
  const maxItems = field.fieldKind === "list" ? maxItemsOf(field) : undefined;
  if (problemOf === undefined && nested.length === 0 && maxItems === undefined) return [];

  const checkValue = (value: unknown, prefix: string, index: number | undefined, errors: FieldError[]) => {
    const problem = problemOf?.(value as never);
    if (problem === undefined && nested.length === 0) return;
    const location = prefix + (index === undefined ? jsonName : `${jsonName}[${index}]`);
    if (problem !== undefined) errors.push({ location, message: problem });
    for (const check of nested) check(value as Message, `${location}.`, errors);
  };
  const check: Check = (message, prefix, errors) => {
    const value = read(message);
    if (value === undefined || isEnough(errors)) return;
    if (!Array.isArray(value) || maxItems === undefined) checkValue(value, prefix, undefined, errors);
    else if (value.length > maxItems) errors.push({ location: prefix + jsonName, message: tooManyItems(maxItems) });
    else for (const [index, item] of value.entries()) checkValue(item, prefix, index, errors);
  };
  return [check];
}

type ProblemOf = (value: never) => string | undefined;

/** Returns the check for a field's value, or for its items if it is a list. Undefined if there is nothing to check. */
function problemFinderOf(field: DescField): ProblemOf | undefined {
  const maxLength = maxLengthOf(field);
  if (maxLength !== undefined) return problemOfText(maxLength);
  const typeName = field.message?.typeName ?? "";
  return typeName === FieldMaskSchema.typeName ? problemOfMask(maxItemsOf(field)) : problemFinders[typeName];
}

const problemFinders: Readonly<Record<string, ProblemOf>> = {
  [StructSchema.typeName]: problemOfMeta,
  [TimestampSchema.typeName]: problemOfTime,
};

/** Rules count characters, which is slow. A character has at most two UTF-16 code units. */
function problemOfText(maxLength: number): (text: string) => string | undefined {
  return (text) => (text.length > 2 * maxLength ? tooLong(maxLength) : problemOfCharacters(text));
}

/** PostgreSQL cannot store NUL, and a lone surrogate would silently be replaced. */
function problemOfCharacters(text: string): string | undefined {
  if (text.includes("\0")) return "must not contain the character U+0000";
  if (!text.isWellFormed()) return "must be well-formed Unicode, without lone surrogates";
  return undefined;
}

function problemOfMask(maxPaths = 0): (mask: FieldMask) => string | undefined {
  return ({ paths }) => (paths.length > maxPaths ? `must name at most ${maxPaths} fields` : undefined);
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

/** A Timestamp covers the years 1 to 9999, but over gRPC any number can arrive. Times are rounded to milliseconds. */
function problemOfTime({ seconds, nanos }: Timestamp): string | undefined {
  const maxNanos = seconds === 253_402_300_799n ? 999_499_999 : 999_999_999;
  const exists = seconds >= -62_135_596_800n && seconds <= 253_402_300_799n && nanos >= 0 && nanos <= maxNanos;
  return exists ? undefined : "must be a time between the years 1 and 9999";
}

function readerOf({ localName, oneof }: DescField) {
  return (message: Message): unknown => {
    const members = message as unknown as Record<string, unknown>;
    if (oneof === undefined) return members[localName];
    const selected = members[oneof.localName] as { case?: string; value?: unknown };
    return selected.case === localName ? selected.value : undefined;
  };
}

/** The path in the notation of clients: `permissions[0]`. A oneof is named by its members: `a|b`. */
function locationOf(path: Path): string {
  const location = path.map((part) => {
    if (part.kind === "field") return `.${part.jsonName}`;
    if (part.kind === "oneof") return `.${part.fields.map((field) => field.jsonName).join("|")}`;
    return part.kind === "list_sub" ? `[${part.index}]` : "";
  });
  return location.join("").replace(/^\./, "") || "body";
}
