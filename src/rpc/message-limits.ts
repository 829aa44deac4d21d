import { type DescField, getOption, isFieldSet, ScalarType } from "@bufbuild/protobuf";
import { field as fieldRules, RepeatedRulesSchema, StringRulesSchema } from "../../gen/buf/validate/validate_pb.js";
import { updateMaskOf } from "../call/update-mask.js";

// What a request costs to read is bounded by these, and not by the bytes that a client sends. A body is scanned for them
// before anything is built from it: 128 KiB can hold 65,000 values, of which libraries make objects, errors and stacks.

/** No field is larger than this as JSON: lists show up to 100 of the largest, and clients must be able to read those. */
export const maxFieldBytes = 16 * 1024;

/** All protocols and every reader of JSON manage 32 levels; protobuf readers differ beyond. */
export const maxDepth = 32;

/** No request has as many members as this, items of lists aside. */
export const maxMembers = 100;

/** A body of this length has no room for work that is worth bounding. Most calls are smaller, and are spared the scan. */
export const smallBody = 1024;

export const tooDeep = `must not nest deeper than ${maxDepth} levels`;
export const tooLarge = `must not be larger than ${maxFieldBytes / 1024} KiB as JSON`;
export const tooManyMembers = `must not have more than ${maxMembers} members`;

/** In the words of protovalidate, which are used where items are few enough to be looked at. */
export const tooManyItems = (most: number) => `must contain no more than ${most} item(s)`;
export const tooLong = (most: number) => `must be at most ${most} characters`;

/** How many items a list may have, or paths an update mask; undefined if the field is neither. */
export function maxItemsOf(field: DescField): number | undefined {
  const mask = updateMaskOf(field.parent);
  if (mask?.field === field) return mask.changeable.size;
  if (field.fieldKind !== "list") return undefined;
  const { type } = getOption(field, fieldRules);
  const isBounded = type.case === "repeated" && isFieldSet(type.value, RepeatedRulesSchema.field.maxItems);
  return isBounded ? Number(type.value.maxItems) : maxFieldBytes;
}

/** How many characters a text may have, or each text of a list; undefined if the field has none. */
export function maxLengthOf(field: DescField): number | undefined {
  if (field.scalar !== ScalarType.STRING) return undefined;
  const rules = getOption(field, fieldRules);
  const { type } = rules.type.case === "repeated" ? (rules.type.value.items ?? rules) : rules;
  const isBounded = type.case === "string" && isFieldSet(type.value, StringRulesSchema.field.maxLen);
  return isBounded ? Number(type.value.maxLen) : maxFieldBytes;
}
