import { type DescField, getOption, hasOption } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { type FieldRules, FieldRulesSchema, field as fieldRules } from "../../gen/buf/validate/validate_pb.js";
import type { JsonObject } from "./json.js";

/** The protovalidate rules of a field in the words of JSON Schema. A rule that has no word yet fails the generation. */
export function limitsOf(field: DescField): JsonObject {
  return hasOption(field, fieldRules) ? wordsFor(getOption(field, fieldRules), String(field)) : {};
}

/** Whether a request must give the field: what is not given is the zero value, and the rules refuse that. */
export function isRequired(field: DescField): boolean {
  if (field.oneof !== undefined || field.fieldKind === "list" || field.proto.proto3Optional) return false;
  const { minLength = 0 } = limitsOf(field);
  return Number(minLength) > 0 || (hasOption(field, fieldRules) && getOption(field, fieldRules).required);
}

function wordsFor(rules: FieldRules, where: string): JsonObject {
  const ofType = reflect(FieldRulesSchema, rules);
  const words = ofType.fields
    .filter((rule) => ofType.isSet(rule) && rule.name !== "required" && rule.name !== "cel")
    .map((rule) => wordsForType(rule.name, ofType.get(rule) as ReflectMessage, where));
  const patterns = rules.cel.map(({ expression }) => ({ pattern: patternOf(expression, where) }));
  return Object.assign({}, ...words, ...patterns);
}

function wordsForType(type: string, rules: ReflectMessage, where: string): JsonObject {
  const words = rules.fields
    .filter((rule) => rules.isSet(rule))
    .map((rule): JsonObject => {
      const name = `${type}.${rule.name}`;
      const value = rules.get(rule);
      if (name === "repeated.items") return { items: wordsFor((value as ReflectMessage).message as FieldRules, where) };
      const word = vocabulary[name];
      if (word === undefined) throw new Error(`${where}: the rule ${name} has no word in OpenAPI yet`);
      return word === unsaid ? {} : { [word]: typeof value === "bigint" ? Number(value) : (value as number | boolean) };
    });
  return Object.assign({}, ...words);
}

/** For rules that a schema cannot say, or says by other means. The comment of the field tells them. */
const unsaid = "";

const vocabulary: Record<string, string> = {
  "string.min_len": "minLength",
  "string.max_len": "maxLength",
  "int32.gte": "minimum",
  "int32.lte": "maximum",
  "int64.gte": "minimum",
  "int64.lte": "maximum",
  "repeated.max_items": "maxItems",
  "repeated.unique": "uniqueItems",
  "enum.defined_only": unsaid,
  "timestamp.gt_now": unsaid,
};

/** CEL rules of the two forms `this.matches('…')` and `!this.matches('[…]')`, as a regular expression. */
function patternOf(expression: string, where: string): string {
  const [, negated, quoted] = /^(!?)this\.matches\('([^']*)'\)$/.exec(expression) ?? [];
  if (quoted === undefined) throw new Error(`${where}: the rule ${expression} has no word in OpenAPI yet`);
  const pattern = quoted.replace("[:cntrl:]", "\\u0000-\\u001f\\u007f");
  if (negated === "") return pattern;
  const [, characters] = /^\[([^\]]*)\]$/.exec(pattern) ?? [];
  if (characters === undefined) throw new Error(`${where}: of negated rules, only those on one character are known`);
  return `^[^${characters}]*$`;
}
