import { readdirSync } from "node:fs";
import {
  type DescField,
  type DescMessage,
  type DescMethod,
  type DescMethodUnary,
  type DescService,
  getOption,
  ScalarType,
} from "@bufbuild/protobuf";
import { StructSchema } from "@bufbuild/protobuf/wkt";
import { type FieldRules, field as fieldRules } from "../../gen/buf/validate/validate_pb.js";
import { http } from "../../gen/google/api/annotations_pb.js";
import { type Access, access } from "../../gen/latchkey/v1/access_pb.js";
import { ErrorCode, fails_with } from "../../gen/latchkey/v1/errors_pb.js";
import type { HttpRoute } from "./operations.js";

/** An RPC and its options, read from its descriptor, so that tests of all RPCs include those added later. */
export interface Rpc {
  /** `KeysService.CreateKey`. */
  readonly name: string;
  readonly method: DescMethodUnary;
  readonly access: Access;
  readonly routes: readonly HttpRoute[];
  /** Its declared not-found errors, such as `data/key_not_found`. */
  readonly notFound: readonly string[];
}

/** Every unary RPC of every generated service. */
export const rpcs: readonly Rpc[] = (await readServices()).flatMap(({ name, methods }) =>
  methods.filter(isUnary).map((method) => ({
    name: `${name}.${method.name}`,
    method,
    access: getOption(method, access),
    routes: routesOf(method),
    notFound: getOption(method, fails_with)
      .map(pathOf)
      .filter((path) => path.endsWith("_not_found")),
  })),
);

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === "unary";
}

async function readServices(): Promise<DescService[]> {
  const folder = new URL("../../gen/latchkey/v1/", import.meta.url);
  // The commands run compiled.
  const files = readdirSync(folder).filter((file) => /_service_pb\.(ts|js)$/.test(file));
  const modules = await Promise.all(files.map((file) => import(new URL(file, folder).href)));
  return modules.flatMap((module: object) => Object.values(module).filter((value) => value?.kind === "service"));
}

function routesOf(method: DescMethodUnary): HttpRoute[] {
  const rule = getOption(method, http);
  return [rule, ...rule.additionalBindings].map(({ pattern, body }) => {
    const bodyField = method.input.fields.find(({ name }) => name === body);
    const route = [pattern.case === "get" ? "GET" : "POST", String(pattern.value)] as const;
    return bodyField ? [...route, bodyField.jsonName] : route;
  });
}

function pathOf(code: ErrorCode): string {
  return ErrorCode[code].toLowerCase().replace("_", "/");
}

/** Ids and values for requests, by the HTTP names of the fields. */
export type Things = Readonly<Record<string, string>>;

/**
 * A request of an RPC that is valid if these resources exist. It sets the first of fields that exclude each other, and
 * of numbers, lists and messages those without which the request would be invalid.
 */
export function requestOf({ method }: Rpc, things: Things): Readonly<Record<string, unknown>> {
  return membersOf(method.input, things);
}

function membersOf({ fields }: DescMessage, things: Things): Readonly<Record<string, unknown>> {
  const request: Record<string, unknown> = {};
  const chosen = new Set<string>();
  for (const field of fields) {
    const value = field.fieldKind === "list" ? listFor(field, things) : valueFor(field, things);
    if (value === undefined || (field.oneof && chosen.has(field.oneof.name))) continue;
    request[field.jsonName] = value;
    if (field.oneof) chosen.add(field.oneof.name);
  }
  return request;
}

function valueFor(field: DescField, things: Things): unknown {
  const { jsonName, fieldKind, message, enum: enumeration, scalar } = field;
  if (fieldKind === "enum") return enumeration?.values[1]?.localName;
  if (message?.typeName === StructSchema.typeName) return { plan: "pro" };
  if (fieldKind !== "scalar") return undefined;
  const { type, required } = rulesOf(field);
  if (type.case === "string" && type.value.in.length > 0) return type.value.in[0];
  if (scalar === ScalarType.STRING) return things[jsonName];
  if (type.case !== "int64" || (field.proto.proto3Optional && !required)) return undefined;
  const min = Number(type.value.greaterThan.value ?? 0n);
  // Without presence, a number that is not sent is 0.
  return required ? min : min || undefined;
}

/** A list with one item, if it must not be empty. */
function listFor(field: DescField, things: Things): unknown[] | undefined {
  const { type } = rulesOf(field);
  if (type.case !== "repeated" || Number(type.value.minItems) === 0) return undefined;
  const item = field.message ? membersOf(field.message, things) : things[items[field.jsonName] ?? ""];
  return item === undefined ? undefined : [item];
}

/** The things in lists of strings. */
const items: Readonly<Record<string, string>> = { permissions: "slug", roles: "role" };

function rulesOf(field: DescField): FieldRules {
  return getOption(field, fieldRules);
}
