import { type DescField, getOption, hasOption } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { type FieldRules, FieldRulesSchema, field as fieldRules } from "../../gen/buf/validate/validate_pb.js";
import type { JsonObject } from "./json.js";

/** The protovalidate rules of a field as JSON Schema keywords. A rule without a keyword fails the generation. */
export function limitsOf(field: DescField): JsonObject {
  return hasOption(field, fieldRules) ? keywordsFor(getOption(field, fieldRules), String(field)) : {};
}

/** Whether a request must contain the field. An absent field has its zero value, which the rules may reject. */
export function isRequired(field: DescField): boolean {
  if (field.oneof !== undefined || field.fieldKind === "list" || field.proto.proto3Optional) return false;
  const { minLength = 0 } = limitsOf(field);
  return Number(minLength) > 0 || (hasOption(field, fieldRules) && getOption(field, fieldRules).required);
}

function keywordsFor(rules: FieldRules, where: string): JsonObject {
  const ruleSet = reflect(FieldRulesSchema, rules);
  const keywords = ruleSet.fields
    .filter((rule) => ruleSet.isSet(rule) && rule.name !== "required" && rule.name !== "cel")
    .map((rule) => keywordsForType(rule.name, ruleSet.get(rule) as ReflectMessage, where));
  const patterns = rules.cel.map(({ expression }) => ({ pattern: patternOf(expression, where) }));
  return Object.assign({}, ...keywords, ...patterns);
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
      return keyword === inexpressible
        ? {}
        : { [keyword]: typeof value === "bigint" ? Number(value) : (value as number | boolean) };
    });
  return Object.assign({}, ...keywords);
}

/** For rules that a schema cannot express, or expresses by other means. The field's comment describes them. */
const inexpressible = "";

const keywordByRule: Record<string, string> = {
  "string.min_len": "minLength",
  "string.max_len": "maxLength",
  "int32.gte": "minimum",
  "int32.lte": "maximum",
  "int64.gte": "minimum",
  "int64.lte": "maximum",
  "repeated.max_items": "maxItems",
  "repeated.unique": "uniqueItems",
  "enum.defined_only": inexpressible,
  "timestamp.gt_now": inexpressible,
};

/** CEL rules of the two forms `this.matches('…')` and `!this.matches('[…]')`, as a regular expression. */
function patternOf(expression: string, where: string): string {
  const [, negated, quoted] = /^(!?)this\.matches\('([^']*)'\)$/.exec(expression) ?? [];
  if (quoted === undefined) throw new Error(`${where}: the rule ${expression} has no JSON Schema keyword yet`);
  const pattern = quoted.replace("[:cntrl:]", "\\u0000-\\u001f\\u007f");
  if (negated === "") return pattern;
  const [, characters] = /^\[([^\]]*)\]$/.exec(pattern) ?? [];
  if (characters === undefined) throw new Error(`${where}: negated rules are supported only for one character class`);
  return `^[^${characters}]*$`;
}
