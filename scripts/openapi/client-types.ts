// Generates gen/client.ts: the HTTP/JSON interface as TypeScript types, for the client without protobuf. Written by hand,
// because a generator that reads the OpenAPI document could not tell a time from a count: both are integers there.
import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type DescMethod,
  getOption,
  ScalarType,
} from "@bufbuild/protobuf";
import { StructSchema } from "@bufbuild/protobuf/wkt";
import { http } from "../../gen/google/api/annotations_pb.js";
import type { HttpRule } from "../../gen/google/api/http_pb.js";
import { accepts_idempotency_key } from "../../gen/latchkey/v1/idempotency_pb.js";
import { PaginationSchema } from "../../gen/latchkey/v1/pagination_pb.js";
import { errorCodes, pathOf } from "../../src/errors.js";
import { commentOf, paragraphs } from "./comments.js";
import type { JsonObject } from "./json.js";
import { accessSentence } from "./operations.js";
import { isRequired, limitsOf } from "./rules.js";
import { isAlwaysReturned, isNullable, isNullIfUnset, isTime, messagesIn, nameOf, readableFields } from "./schemas.js";

/** One `/v2` path of an RPC, as the client offers it: `keys.createKey`. */
interface Operation {
  readonly method: DescMethod;
  readonly rule: HttpRule;
  readonly group: string;
  readonly name: string;
}

/** The TypeScript module with the types and the list of all operations. */
export function describeClient(methods: readonly DescMethod[]): string {
  const returned = messagesIn(methods.map(({ output }) => output));
  const declarations = new Map<string, string>();

  /** Declares a type once, and returns its name. */
  function declared(name: string, declaration: () => string): string {
    if (!declarations.has(name)) {
      declarations.set(name, ""); // a message may contain itself
      declarations.set(name, declaration());
    }
    return name;
  }

  function requestType(message: DescMessage): string {
    const name = returned.has(message) ? `${nameOf(message)}Input` : nameOf(message);
    return declared(name, () => {
      const members = readableFields(message).map((field) => {
        const type = isNullable(field) ? `${requestFieldType(field)} | null` : requestFieldType(field);
        return memberOf(field, isRequired(field) ? `: ${type}` : `?: ${type} | undefined`);
      });
      return interfaceOf(name, commentOf(message), members);
    });
  }

  function requestFieldType(field: DescField): string {
    if (isTime(field)) return "number | Date";
    const { items, ...limits } = limitsOf(field);
    if (field.fieldKind !== "list") return valueType(field, limits, requestType);
    return `readonly ${listOf(valueType(field, (items as JsonObject | undefined) ?? {}, requestType))}`;
  }

  function responseType(message: DescMessage): string {
    return declared(nameOf(message), () => {
      const members = message.fields.map((field) => {
        const type = responseFieldType(field);
        return memberOf(field, isAlwaysReturned(field) ? `: ${type}` : `?: ${type}`);
      });
      return interfaceOf(nameOf(message), commentOf(message), members);
    });
  }

  function responseFieldType(field: DescField): string {
    const value = isTime(field) ? "number" : valueType(field, {}, responseType);
    const type = field.fieldKind === "list" ? listOf(value) : value;
    return isNullIfUnset(field) ? `${type} | null` : type;
  }

  function valueType(
    { enum: values, message, scalar }: DescField,
    { enum: texts }: JsonObject,
    typeOfMessage: (message: DescMessage) => string,
  ): string {
    if (values !== undefined) return declared(values.name, () => enumOf(values));
    if (message !== undefined)
      return message.typeName === StructSchema.typeName ? "JsonObject" : typeOfMessage(message);
    if (Array.isArray(texts)) return texts.map((text) => JSON.stringify(text)).join(" | ");
    const type = scalar && scalars[scalar];
    if (type === undefined) throw new Error(`there is no type yet for ${ScalarType[scalar ?? 0]}`);
    return type;
  }

  /** The type of a request, and of what its response has as `data`. Of a list, it is the type of an item. */
  function signatureOf({ method: { input, output }, rule }: Operation): string {
    const bodyField = input.fields.find(({ name }) => name === rule.body);
    const request = bodyField ? requestFieldType(bodyField) : requestType(input);
    const data = output.fields.find(({ name }) => name === rule.responseBody);
    if (data !== undefined && isPaged(output)) return `{ request: ${request}; item: ${responseType(messageOf(data))} }`;
    return `{ request: ${request}; response: ${data ? responseFieldType(data) : responseType(output)} }`;
  }

  const operations = methods.flatMap(operationsOf);
  const groups = [...new Set(operations.map(({ group }) => group))].map((group) => ({
    group,
    members: operations.filter((operation) => operation.group === group),
  }));
  const signatures = groups.map(({ group, members }) => {
    const lines = members.map((operation) => {
      const comment = paragraphs(commentOf(operation.method), accessSentence(operation.method));
      return `${commentLines(comment, "    ")}    ${operation.name}: ${signatureOf(operation)};\n`;
    });
    return `  ${group}: {\n${lines.join("")}  };\n`;
  });
  const kinds = groups.map(({ group, members }) => {
    const lines = members.map((operation) => `    ${operation.name}: "${kindOf(operation)}",\n`);
    return `  ${group}: {\n${lines.join("")}  },\n`;
  });
  return [
    "// Generated by scripts/openapi/client-types.ts from the proto files. Do not edit.\n",
    jsonTypes,
    `/** Every error of the service, as \`<category>/<code>\`. */\nexport type ErrorType =\n${unionOf(errorCodes.map(pathOf))};\n`,
    ...[...declarations].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, declaration]) => declaration),
    `/** The request and the response of each operation, by the two parts of its path: \`/v2/keys.createKey\`. */\nexport interface Operations {\n${signatures.join("")}}\n`,
    `/** What an operation does. A retry of a \`read\` or a \`list\` changes nothing; an \`idempotent\` one accepts an idempotency key. */\nexport type OperationKind = "read" | "list" | "idempotent" | "change";\n`,
    `/** All operations. */\nexport const operations: { readonly [Group in keyof Operations]: { readonly [Name in keyof Operations[Group]]: OperationKind } } = {\n${kinds.join("")}};\n`,
  ].join("\n");
}

const jsonTypes = `/** Any JSON value. */
export type JsonValue = string | number | boolean | null | readonly JsonValue[] | JsonObject;

/** A JSON object. */
export interface JsonObject {
  readonly [name: string]: JsonValue;
}
`;

const scalars: Partial<Record<ScalarType, string>> = {
  [ScalarType.STRING]: "string",
  [ScalarType.BOOL]: "boolean",
  [ScalarType.INT32]: "number",
  [ScalarType.INT64]: "number",
};

/** The `/v2` paths of an RPC. The `/v1` paths are the same operations. */
function operationsOf(method: DescMethod): Operation[] {
  const rule = getOption(method, http);
  return [rule, ...rule.additionalBindings].flatMap((binding) => {
    const [, group, name] = /^\/v2\/(\w+)\.(\w+)$/.exec(String(binding.pattern.value)) ?? [];
    return group === undefined || name === undefined ? [] : [{ method, rule: binding, group, name }];
  });
}

function kindOf({ method, name }: Operation): string {
  if (isPaged(method.output)) return "list";
  if (getOption(method, accepts_idempotency_key)) return "idempotent";
  return /^(get|list|whoami)/.test(name) ? "read" : "change";
}

function isPaged({ fields }: DescMessage): boolean {
  return fields.some(({ message }) => message?.typeName === PaginationSchema.typeName);
}

function messageOf({ message, name }: DescField): DescMessage {
  if (message === undefined) throw new Error(`${name}: a list with pages must contain messages`);
  return message;
}

function enumOf(descriptor: DescEnum): string {
  const values = descriptor.values.filter(({ number }) => number !== 0);
  const lines = values.map((value) => `- \`${value.localName}\`: ${commentOf(value)}`);
  const comment = commentLines(`${commentOf(descriptor)}\n\n${lines.join("\n")}`, "");
  return `${comment}export type ${descriptor.name} =\n${unionOf(values.map(({ localName }) => localName))};\n`;
}

function unionOf(texts: readonly string[]): string {
  return texts.map((text) => `  | ${JSON.stringify(text)}`).join("\n");
}

function listOf(type: string): string {
  return type.includes(" ") ? `(${type})[]` : `${type}[]`;
}

function interfaceOf(name: string, comment: string, members: readonly string[]): string {
  const body = members.length > 0 ? `{\n${members.join("")}}` : "{}";
  return `${commentLines(comment, "")}export interface ${name} ${body}\n`;
}

function memberOf(field: DescField, type: string): string {
  const comment = isTime(field) ? `${commentOf(field)} In Unix milliseconds.` : commentOf(field);
  return `${commentLines(comment, "  ")}  ${field.jsonName}${type};\n`;
}

function commentLines(text: string, indent: string): string {
  const lines = text.replaceAll("*/", "*\\/").split("\n");
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((line) => `${indent} *${line && ` ${line}`}\n`).join("")}${indent} */\n`;
}
