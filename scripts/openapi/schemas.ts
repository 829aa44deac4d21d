import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type DescOneof,
  getOption,
  hasOption,
  ScalarType,
} from "@bufbuild/protobuf";
import { StructSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { oneof as oneofRules } from "../../gen/buf/validate/validate_pb.js";
import { null_if_unset } from "../../gen/latchkey/v1/json_pb.js";
import { updateMaskOf } from "../../src/call/update-mask.js";
import { commentOf } from "./comments.js";
import { exampleOf, exampleRequest } from "./examples.js";
import type { Json, JsonObject } from "./json.js";
import { isRequired, limitsOf } from "./rules.js";

/** The schemas of messages in HTTP/JSON, as src/http/json/codec.ts reads and writes them. */
export interface Schemas {
  /** A request as a JSON body, or one field of it that is the whole body. */
  request(message: DescMessage): JsonObject;
  requestField(field: DescField): JsonObject;
  /** A request as query parameters. */
  query(message: DescMessage): JsonObject[];
  /** A response message, or one field of it. */
  response(message: DescMessage): JsonObject;
  responseField(field: DescField): JsonObject;
  /** Registers a schema under a name, and returns a reference to it. */
  named(name: string, schema: () => JsonObject): JsonObject;
  /** The schema that a reference refers to. */
  resolve(reference: JsonObject): JsonObject;
  /** All registered schemas by name. */
  all(): JsonObject;
}

/** @param outputs the response messages of all RPCs */
export function createSchemas(outputs: readonly DescMessage[]): Schemas {
  const schemasByName = new Map<string, JsonObject>();
  const returned = messagesIn(outputs);

  function named(name: string, schema: () => JsonObject): JsonObject {
    if (!schemasByName.has(name)) schemasByName.set(name, schema());
    return { $ref: `#/components/schemas/${name}` };
  }

  function request(message: DescMessage): JsonObject {
    // As a request, a message has rules, and unknown members are refused.
    return named(returned.has(message) ? `${nameOf(message)}Input` : nameOf(message), () => {
      const fields = readableFields(message);
      return {
        type: "object",
        description: commentOf(message),
        properties: Object.fromEntries(
          fields.map((field) => [
            field.jsonName,
            isNullable(field) ? orNull(requestField(field)) : requestField(field),
          ]),
        ),
        ...requiredOf(fields.filter(isRequired)),
        additionalProperties: false,
        ...choicesOf(message.oneofs),
        examples: [exampleRequest(message, (field) => fields.includes(field))],
      };
    });
  }

  function response(message: DescMessage): JsonObject {
    return {
      type: "object",
      description: commentOf(message),
      properties: Object.fromEntries(message.fields.map((field) => [field.jsonName, responseField(field)])),
      ...requiredOf(message.fields.filter(isAlwaysReturned)),
    };
  }

  function requestField(field: DescField): JsonObject {
    const { items, ...limits } = limitsOf(field);
    const schema = schemaOf(field, request);
    const value = field.fieldKind === "list" ? listOf({ ...schema, ...(items as JsonObject) }) : schema;
    return described(field, { ...value, ...(isTime(field) && timeLimits), ...limits });
  }

  function responseField(field: DescField): JsonObject {
    const schema = schemaOf(field, (message) => named(nameOf(message), () => response(message)));
    const value = described(field, field.fieldKind === "list" ? listOf(schema) : schema);
    return isNullIfUnset(field) ? orNull(value) : value;
  }

  function schemaOf(
    { enum: values, message, scalar }: DescField,
    schemaOfMessage: (message: DescMessage) => JsonObject,
  ): JsonObject {
    if (values !== undefined) return named(values.name, () => enumOf(values));
    if (message !== undefined) return wellKnown[message.typeName] ?? schemaOfMessage(message);
    const value = scalar && scalars[scalar];
    if (value === undefined) throw new Error(`there is no schema yet for ${ScalarType[scalar ?? 0]}`);
    return value;
  }

  return {
    request,
    requestField,
    query: (message) =>
      readableFields(message).map((field) => {
        const { description, ...schema } = requestField(field);
        return { name: field.jsonName, in: "query", description, required: isRequired(field), schema };
      }),
    response,
    responseField,
    named,
    resolve: ({ $ref }) => schemasByName.get(String($ref).replace(/.*\//, "")) ?? {},
    all: () => Object.fromEntries([...schemasByName].sort(([a], [b]) => (a < b ? -1 : 1))),
  };
}

/** The messages, and all messages in them. */
export function messagesIn(roots: readonly DescMessage[]): Set<DescMessage> {
  const found = new Set(roots);
  // The loop also visits the messages that it adds.
  for (const { fields } of found) for (const { message } of fields) if (message !== undefined) found.add(message);
  return found;
}

/** The name of a message, with those of the messages that it is declared in. */
export function nameOf({ name, parent }: DescMessage): string {
  return parent === undefined ? name : nameOf(parent) + name;
}

/** Whether a response has the field as null if it is not set. */
export function isNullIfUnset(field: DescField): boolean {
  return getOption(field, null_if_unset);
}

/** Whether every response has the field. */
export function isAlwaysReturned(field: DescField): boolean {
  return !field.proto.proto3Optional || isNullIfUnset(field);
}

/** HTTP/JSON has no update mask; `null` clears a field there. */
export function readableFields(message: DescMessage): DescField[] {
  const mask = updateMaskOf(message);
  return message.fields.filter((field) => field !== mask?.field);
}

const scalars: Partial<Record<ScalarType, JsonObject>> = {
  [ScalarType.STRING]: { type: "string" },
  [ScalarType.BOOL]: { type: "boolean" },
  [ScalarType.INT32]: { type: "integer", format: "int32" },
  [ScalarType.INT64]: { type: "integer", format: "int64" },
};

const wellKnown: Record<string, JsonObject> = {
  [StructSchema.typeName]: { type: "object", additionalProperties: true },
  [TimestampSchema.typeName]: { type: "integer", format: "int64" },
};

/** Times are accepted from the year 1 to the year 9999. */
const timeLimits = { minimum: -62_135_596_800_000, maximum: 253_402_300_799_999 };

/** The unspecified value is neither read nor written. */
function enumOf(descriptor: DescEnum): JsonObject {
  const values = descriptor.values.filter(({ number }) => number !== 0);
  const lines = values.map((value) => `- \`${value.localName}\`: ${commentOf(value)}`);
  return {
    type: "string",
    description: `${commentOf(descriptor)}\n\n${lines.join("\n")}`,
    enum: values.map(({ localName }) => localName),
  };
}

function listOf(items: JsonObject): JsonObject {
  return { type: "array", items };
}

/** Whether the field is a time: Unix milliseconds in HTTP/JSON. */
export function isTime({ message }: DescField): boolean {
  return message?.typeName === TimestampSchema.typeName;
}

function described(field: DescField, schema: JsonObject): JsonObject {
  const description = isTime(field) ? `${commentOf(field)} In Unix milliseconds.` : commentOf(field);
  const example = field.message === undefined || schema["$ref"] === undefined ? exampleOf(field) : undefined;
  return { ...schema, description, ...(example !== undefined && { examples: [example] }) };
}

/** In an update, `null` clears a field, except a boolean, which cannot be cleared. Elsewhere it means omitted. */
export function isNullable(field: DescField): boolean {
  const isChange = updateMaskOf(field.parent)?.changeable.has(field.name) ?? false;
  return !isRequired(field) && !(isChange && field.scalar === ScalarType.BOOL);
}

function orNull({ $ref, type, const: constant, ...rest }: JsonObject): JsonObject {
  // A constant would exclude null.
  const values = constant === undefined ? {} : { enum: [constant, null] };
  return $ref === undefined
    ? { type: [type as Json, "null"], ...values, ...rest }
    : { anyOf: [{ $ref }, { type: "null" }], ...rest };
}

function requiredOf(fields: readonly DescField[]): JsonObject {
  return fields.length > 0 ? { required: fields.map(({ jsonName }) => jsonName) } : {};
}

/** Exactly one member of a required oneof must be set; of another oneof at most one may be. `null` counts as unset. */
function choicesOf(oneofs: readonly DescOneof[]): JsonObject {
  const choices = oneofs.map((oneof): JsonObject => {
    const isMandatory = hasOption(oneof, oneofRules) && getOption(oneof, oneofRules).required;
    if (isMandatory) return { oneOf: oneof.fields.map((field) => ({ title: field.jsonName, ...requireSet(field) })) };
    const pairs = oneof.fields.flatMap((one, index) =>
      oneof.fields.slice(index + 1).map((other) => requireSet(one, other)),
    );
    return pairs.length > 1 ? { not: { anyOf: pairs } } : { not: pairs[0] };
  });
  return choices.length > 1 ? { allOf: choices } : (choices[0] ?? {});
}

function requireSet(...fields: readonly DescField[]): JsonObject {
  const types = fields.map(({ jsonName, message }) => [jsonName, { type: message ? "object" : "string" }]);
  return { required: fields.map(({ jsonName }) => jsonName), properties: Object.fromEntries(types) };
}
