import {
  type DescField,
  type DescMessage,
  type DescOneof,
  getOption,
  hasOption,
  isFieldSet,
  type Message,
  type MessageShape,
} from "@bufbuild/protobuf";
import {
  FieldRulesSchema,
  field as fieldRules,
  message as messageRules,
  OneofRulesSchema,
  oneof as oneofRules,
  StringRulesSchema,
} from "../../gen/buf/validate/validate_pb.js";

/** Whether a message is certainly valid. False means unknown: protovalidate decides then. */
export type LengthRules = (message: Message) => boolean;

/**
 * Compiles a fast path for messages whose rules only limit the length of strings. The most frequent requests are of
 * this kind. protovalidate, which can check any rule, takes 1.5 µs of CPU for verifyKey and 0.9 µs for getIdentity; this
 * takes 0.07 µs (Neoverse-N1, medians of 8 alternating rounds). That is about 1% of a call.
 */
export function compileLengthRules(schema: DescMessage): LengthRules {
  const checks = schema.members.map((member) =>
    member.kind === "oneof" ? checkOfOneof(member) : checkOfField(member),
  );
  if (hasOption(schema, messageRules) || checks.includes(undefined)) return () => false;
  return (message) => {
    const members = message as unknown as Record<string, unknown>;
    for (const check of checks) if (!check?.(members)) return false;
    return true;
  };
}

type Check = (members: Readonly<Record<string, unknown>>) => boolean;

function checkOfField(field: DescField): Check | undefined {
  const isLengthValid = lengthCheckOf(field);
  const { localName } = field;
  return (
    isLengthValid &&
    ((members) => {
      const text = members[localName];
      return text === undefined || isLengthValid(text as string);
    })
  );
}

/** Undefined for an optional oneof, which only protovalidate checks. */
function checkOfOneof(oneof: DescOneof): Check | undefined {
  const checks = new Map(oneof.fields.map((field) => [field.localName, lengthCheckOf(field)]));
  const isRequired = hasOption(oneof, oneofRules) && getOption(oneof, oneofRules).required;
  if (!isRequired || !hasOnly(OneofRulesSchema, getOption(oneof, oneofRules), ["required"])) return undefined;
  const { localName } = oneof;
  return (members) => {
    const selected = members[localName] as { case?: string; value?: string };
    return checks.get(selected.case ?? "")?.(selected.value as string) ?? false;
  };
}

/** Undefined if a field is not a string, or has rules about more than its length. */
function lengthCheckOf(field: DescField): ((text: string) => boolean) | undefined {
  if (field.fieldKind !== "scalar" || !hasOption(field, fieldRules)) return undefined;
  const rules = getOption(field, fieldRules);
  if (rules.type.case !== "string") return undefined;
  const { value: limits } = rules.type;
  if (!hasOnly(FieldRulesSchema, rules, ["string"]) || !hasOnly(StringRulesSchema, limits, ["min_len", "max_len"])) {
    return undefined;
  }
  // Rules count characters. `length` counts UTF-16 code units, of which a character takes one or two.
  const minLength = 2 * Number(limits.minLen) - 1;
  const maxLength = isFieldSet(limits, StringRulesSchema.field.maxLen)
    ? Number(limits.maxLen)
    : Number.POSITIVE_INFINITY;
  return (text) => text.length >= minLength && text.length <= maxLength;
}

function hasOnly<Schema extends DescMessage>(schema: Schema, rules: MessageShape<Schema>, names: string[]): boolean {
  return schema.fields.every((field) => names.includes(field.name) || !isFieldSet(rules, field));
}
