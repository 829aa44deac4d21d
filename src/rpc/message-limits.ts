import { type DescField, type DescMessage, getOption, isFieldSet, ScalarType } from "@bufbuild/protobuf";
import { field as fieldRules, RepeatedRulesSchema, StringRulesSchema } from "../../gen/buf/validate/validate_pb.js";
import { updateMaskOf } from "../call/update-mask.js";

// These limits bound the cost of decoding a request. The limit of its bytes does not: 128 KiB can contain 65,000
// values, for which libraries create objects, errors and stacks. A body is therefore scanned before anything is built
// from it. The scan follows the schema: a field is either a message or a list of messages, in which the limits apply to
// each field again, or it is a single value, such as a text, a list of texts, or any JSON object.

/** The maximum size of a single value as JSON. Responses list up to 100 of them, which clients must be able to read. */
export const maxFieldBytes = 16 * 1024;

/** All protocols and all JSON parsers support 32 levels. Beyond that, protobuf decoders differ. */
export const maxDepth = 32;

/** The maximum number of members of a message, without list items. No valid request has a message with that many. */
export const maxMembers = 100;

/**
 * The maximum number of values of a request, in all its messages, lists and objects together: one for eight bytes of
 * the largest request. A field with its name, or an item such as a permission, takes more bytes than that. Only the
 * values of `meta` can take fewer, and one `meta` of the maximum size has fewer than 11,000.
 */
export const maxValues = 16 * 1024;

/** For JSON and protobuf alike. */
export const repeated = "is given more than once";

export const tooDeep = `must not nest deeper than ${maxDepth} levels`;
export const tooLarge = `must not be larger than ${maxFieldBytes / 1024} KiB as JSON`;
export const tooManyMembers = `must not have more than ${maxMembers} members`;
export const tooManyValues = `must not have more than ${maxValues} values`;

/** The texts of protovalidate, which reports the same errors for smaller values. */
export const tooManyItems = (max: number) => `must contain no more than ${max} item(s)`;
export const tooLong = (max: number) => `must be at most ${max} characters`;

/** Whether a message is a single value, such as a Struct or a Timestamp. */
export function isWellKnown({ typeName }: DescMessage): boolean {
  return typeName.startsWith("google.protobuf.");
}

/** The message of a field that is a message or a list of messages; undefined if the field is a single value. */
export function nestedMessageOf({ fieldKind, message }: DescField): DescMessage | undefined {
  return fieldKind === "map" || message === undefined || isWellKnown(message) ? undefined : message;
}

/** The maximum number of items of a list, or of paths of an update mask. Undefined if the field is neither. */
export function maxItemsOf(field: DescField): number | undefined {
  const mask = updateMaskOf(field.parent);
  if (mask?.field === field) return mask.changeable.size;
  if (field.fieldKind !== "list") return undefined;
  const { type } = getOption(field, fieldRules);
  const isBounded = type.case === "repeated" && isFieldSet(type.value, RepeatedRulesSchema.field.maxItems);
  return isBounded ? Number(type.value.maxItems) : maxFieldBytes;
}

/** The maximum length of a string, or of each string of a list, in characters. Undefined for other fields. */
export function maxLengthOf(field: DescField): number | undefined {
  if (field.scalar !== ScalarType.STRING) return undefined;
  const rules = getOption(field, fieldRules);
  const { type } = rules.type.case === "repeated" ? (rules.type.value.items ?? rules) : rules;
  const isBounded = type.case === "string" && isFieldSet(type.value, StringRulesSchema.field.maxLen);
  return isBounded ? Number(type.value.maxLen) : maxFieldBytes;
}
