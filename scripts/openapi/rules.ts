import { type DescField, getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import { isReflectList, type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { type FieldRules, FieldRulesSchema, field as fieldRules, Ignore } from "../../gen/buf/validate/validate_pb.js";
import { toJavaScript } from "../../src/rpc/rule-pattern.js";
import type { Json, JsonObject } from "./json.js";

/** The protovalidate rules of a field as JSON Schema keywords. A rule without a keyword fails the generation. */
export function limitsOf(field: DescField): JsonObject {
  return hasOption(field, fieldRules) ? keywordsFor(getOption(field, fieldRules), String(field)) : {};
}

/** Whether a request must contain the field. An absent field has its zero value, which the rules may reject. */
export function isRequired(field: DescField): boolean {
  if (field.oneof !== undefined || !hasOption(field, fieldRules)) return false;
  const { required, ignore, type } = getOption(field, fieldRules);
  if (required || field.proto.proto3Optional || ignore === Ignore.IF_ZERO_VALUE) return required;
  const isUnspecifiedRejected = type.case === "enum" && type.value.notIn.includes(0);
  return isUnspecifiedRejected || rejectsZero(limitsOf(field), field.scalar === ScalarType.STRING ? "" : 0);
}

function rejectsZero(
  { minLength, minItems, minimum, exclusiveMinimum, pattern, enum: values }: JsonObject,
  zero: Json,
) {
  return (
    [minLength, minItems, minimum].some((min) => min !== undefined && Number(min) > 0) ||
    (exclusiveMinimum !== undefined && Number(exclusiveMinimum) >= 0) ||
    (pattern !== undefined && !new RegExp(String(pattern)).test("")) ||
    (Array.isArray(values) && !values.includes(zero))
  );
}

/** These are no rules for the value of a field, or are converted separately. */
const otherRules: readonly string[] = ["required", "ignore", "cel"];

function keywordsFor(rules: FieldRules, where: string): JsonObject {
  const ruleSet = reflect(FieldRulesSchema, rules);
  const keywords = ruleSet.fields
    .filter((rule) => ruleSet.isSet(rule) && !otherRules.includes(rule.name))
    .map((rule) => keywordsForType(rule.name, ruleSet.get(rule) as ReflectMessage, where));
  const cel = rules.cel.map(({ expression }) => keywordsForCel(expression, where));
  return Object.assign({}, ...keywords, ...cel);
}

function keywordsForType(type: string, rules: ReflectMessage, where: string): JsonObject {
  const keywords = rules.fields
    .filter((rule) => rules.isSet(rule))
    .map((rule): JsonObject => {
      const name = `${type}.${rule.name}`;
      const value = rules.get(rule);
      if (name === "repeated.items")
        return { items: keywordsFor((value as ReflectMessage).message as FieldRules, where) };
      const keyword = keywordByRule[name];
      if (keyword === undefined) throw new Error(`${where}: the rule ${name} has no JSON Schema keyword yet`);
      if (keyword === inexpressible) return {};
      return { [keyword]: keyword === "pattern" ? toJavaScript(String(value)) : jsonOf(value) };
    });
  return Object.assign({}, ...keywords);
}

function jsonOf(value: unknown): Json {
  if (typeof value === "bigint") return Number(value);
  return isReflectList(value) ? [...value].map(jsonOf) : (value as string | number | boolean);
}

/** For rules that a schema cannot express, or expresses by other means. The field's comment describes them. */
const inexpressible = "";

const keywordByRule: Record<string, string> = {
  "string.min_len": "minLength",
  "string.max_len": "maxLength",
  "string.pattern": "pattern",
  "string.in": "enum",
  ...numberKeywords("int32"),
  ...numberKeywords("int64"),
  "repeated.min_items": "minItems",
  "repeated.max_items": "maxItems",
  "repeated.unique": "uniqueItems",
  "enum.defined_only": inexpressible,
  "enum.not_in": inexpressible, // the unspecified value, which no schema has
  "timestamp.gt_now": inexpressible,
};

function numberKeywords(type: string): Record<string, string> {
  return {
    [`${type}.gte`]: "minimum",
    [`${type}.gt`]: "exclusiveMinimum",
    [`${type}.lte`]: "maximum",
    [`${type}.lt`]: "exclusiveMaximum",
    [`${type}.in`]: "enum",
  };
}

/** The forms of CEL rules, each with its JSON Schema keywords. No keyword compares members with each other. */
const celForms: readonly (readonly [form: RegExp, keywords: (text: string) => JsonObject])[] = [
  [/^this\.matches\('([^']*)'\)$/, (pattern) => ({ pattern: toJavaScript(pattern) })],
  [/^!this\.matches\('\[(.*)\]'\)$/, (characters) => ({ pattern: `^[^${toJavaScript(characters)}]*$` })],
  [/^!this\.matches\('([^']*)'\)$/, (pattern) => ({ not: { pattern: toJavaScript(pattern) } })],
  [/^!this$/, () => ({ const: false })],
  [/^this\.map\(.*\)\.unique\(\)$/, () => ({})],
  [/^has\(.*$/, () => ({})],
];

function keywordsForCel(expression: string, where: string): JsonObject {
  for (const [form, keywords] of celForms) {
    const match = form.exec(expression);
    if (match !== null) return keywords(match[1] ?? "");
  }
  throw new Error(`${where}: the rule ${expression} has no JSON Schema keyword yet`);
}
