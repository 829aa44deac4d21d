import { type DescMethod, getOption, hasOption } from "@bufbuild/protobuf";
import { http } from "../../gen/google/api/annotations_pb.js";
import type { HttpRule } from "../../gen/google/api/http_pb.js";
import { access } from "../../gen/latchkey/v1/access_pb.js";
import { ErrorCode, fails_with } from "../../gen/latchkey/v1/errors_pb.js";
import { accepts_idempotency_key } from "../../gen/latchkey/v1/idempotency_pb.js";
import { PaginationSchema } from "../../gen/latchkey/v1/pagination_pb.js";
import type { ApiErrorCode } from "../../src/errors.js";
import { commentOf, paragraphs, splitSummary } from "./comments.js";
import { envelopeOf, successResponse } from "./envelope.js";
import { errorResponses, errorsOf, rateLimitHeaders } from "./errors.js";
import { exampleInRequest } from "./examples.js";
import type { JsonObject } from "./json.js";
import { isRequired } from "./rules.js";
import type { Schemas } from "./schemas.js";

/** The OpenAPI path item of one HTTP binding of an RPC. */
export interface PathItem {
  readonly path: string;
  readonly item: JsonObject;
}

/** Describes an RPC at each of its HTTP paths. */
export function describeOperation(method: DescMethod, schemas: Schemas): PathItem[] {
  const rule = getOption(method, http);
  return [rule, ...rule.additionalBindings].map((binding, index) => {
    const { case: verb, value } = binding.pattern;
    const path = String(value);
    if (verb !== "get" && verb !== "post") throw new Error(`${method}: the gateway serves \`get\` and \`post\``);
    return { path, item: { [verb]: operationOf(method, binding, operationId(path, index), schemas) } };
  });
}

/** `keys.listKeys`. The ids of additional bindings end with their version. */
function operationId(path: string, index: number): string {
  const [, version, name = ""] = path.split("/");
  return index === 0 ? name : `${name}.${version}`;
}

function operationOf(method: DescMethod, rule: HttpRule, operationId: string, schemas: Schemas): JsonObject {
  const takesBody = rule.pattern.case === "post";
  const { summary, rest } = splitSummary(commentOf(method));
  const parameters = [
    ...(getOption(method, accepts_idempotency_key) ? [idempotencyKeyHeader] : []),
    ...(takesBody ? [] : schemas.query(method.input)),
  ];
  return {
    operationId,
    tags: [tagOf(method.parent)],
    summary,
    description: paragraphs(rest, accessSentence(method)),
    ...securityOf(method),
    ...(parameters.length > 0 && { parameters }),
    ...(takesBody && { requestBody: requestBodyOf(method, rule, schemas) }),
    responses: {
      200: successResponse(commentOf(method.output), responseOf(method, rule, schemas), rateLimitHeaders),
      ...errorResponses(errorsOf(takesBody, declaredErrors(method)), method),
    },
    "x-latchkey-rpc": `${method.parent.typeName}/${method.name}`,
  };
}

/** The header of operations that accept an idempotency key. */
const idempotencyKeyHeader = { $ref: "#/components/parameters/Idempotency-Key" };

/** Operations that accept an idempotency key can also fail with a conflict of that key. */
function declaredErrors(method: DescMethod): ApiErrorCode[] {
  const declared = getOption(method, fails_with) as ApiErrorCode[];
  return getOption(method, accepts_idempotency_key) ? [...declared, ErrorCode.DATA_IDEMPOTENCY_CONFLICT] : declared;
}

/** The tag of a service's operations, as people read it: `APIs`, `Rate limits`. */
export function tagOf({ name }: DescMethod["parent"]): string {
  const words = name.replace(/Service$/, "").replace(/\B[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  return words.replace(/^Apis$/, "APIs");
}

/** Which credential an operation needs. */
export function accessSentence(method: DescMethod): string {
  const { scope, operator } = accessOf(method);
  const key = `a key with the scope \`${scope}\``;
  if (!operator) return `Needs ${key}.`;
  return scope === "" ? "Needs the operator's credential." : `Needs the operator's credential, or ${key}.`;
}

/** Any of the declared credentials. A key must have the scope. */
function securityOf(method: DescMethod): JsonObject {
  const { scope, operator } = accessOf(method);
  return {
    security: [...(scope === "" ? [] : [{ key: [scope] }]), ...(operator ? [{ operator: [] }] : [])],
    "x-latchkey-access": { ...(scope !== "" && { scope }), operator },
  };
}

function accessOf(method: DescMethod) {
  if (!hasOption(method, access)) throw new Error(`${method} does not declare who may call it`);
  return getOption(method, access);
}

/** The body is the message, or one field of it. It is required only if an empty one, `{}` or `[]`, is invalid. */
function requestBodyOf({ input }: DescMethod, { body }: HttpRule, schemas: Schemas): JsonObject {
  const field = input.fields.find(({ name }) => name === body);
  const schema = field
    ? { ...schemas.requestField(field), examples: [exampleInRequest(field) ?? []] }
    : schemas.request(input);
  const { required, oneOf } = schemas.resolve(schema);
  const refusesEmpty =
    required !== undefined || (Array.isArray(oneOf) && oneOf.every((choice) => "required" in choice));
  return { required: field ? isRequired(field) : refusesEmpty, content: { "application/json": { schema } } };
}

/** `response_body` names the field that becomes `data`. A Pagination in the same message belongs to the list. */
function responseOf({ output }: DescMethod, { responseBody }: HttpRule, schemas: Schemas): JsonObject {
  return schemas.named(output.name, () => {
    const description = commentOf(output);
    if (responseBody === "") return envelopeOf(description, schemas.response(output));
    const data = output.fields.find(({ name }) => name === responseBody);
    if (data === undefined) throw new Error(`${output}: has no field ${responseBody} to be the response body`);
    const page = output.fields.find(({ message }) => message?.typeName === PaginationSchema.typeName);
    return envelopeOf(description, schemas.responseField(data), page && schemas.responseField(page));
  });
}
