import { type DescMessage, type DescMethodUnary, getOption, hasOption, type Message } from "@bufbuild/protobuf";
import { http } from "../../../gen/google/api/annotations_pb.js";
import type { HttpRule } from "../../../gen/google/api/http_pb.js";
import { PaginationSchema } from "../../../gen/latchkey/v1/pagination_pb.js";
import { memoizeEncoding } from "../../rpc/memoize-encoding.js";
import type { Procedure } from "../../rpc/pipeline.js";
import type { BodyFormat } from "./body.js";
import {
  compileFieldReader,
  compileFieldWriter,
  compileQueryReader,
  compileReader,
  compileWriter,
  type ReadMessage,
} from "./codec.js";
import { messageMembers } from "./envelope.js";
import { shapeOfField, shapeOfMessage } from "./shape.js";

/** One HTTP binding of an RPC, from its google.api.http annotation. */
export interface Route {
  readonly procedure: Procedure;
  readonly httpMethod: "GET" | "POST";
  readonly path: string;
  /** Undefined for GET, which has no body. */
  readonly body: BodyFormat | undefined;
  /** Reads the request message from the parsed body or, for GET, from the query. */
  readonly read: ReadMessage;
  /** Encodes a response message as the members of the envelope: `data` and, for lists, `pagination`. */
  readonly write: (response: Message) => string;
}

/** Reads the routes of all procedures from their descriptors. There is no other list of routes. */
export function routesOf(procedures: readonly Procedure[]): Route[] {
  return procedures.flatMap((procedure) => {
    const { method } = procedure;
    if (!hasOption(method, http)) throw new Error(`${method} has no HTTP path: add the option (google.api.http)`);
    const rule = getOption(method, http);
    return [rule, ...rule.additionalBindings].map((binding) => createRoute(procedure, binding));
  });
}

function createRoute(procedure: Procedure, rule: HttpRule): Route {
  const { method } = procedure;
  const { case: verb, value: path } = rule.pattern;
  const write = writerOf(method, rule);
  if (verb === "get" && rule.body === "") {
    return { procedure, httpMethod: "GET", path, body: undefined, read: compileQueryReader(method.input), write };
  }
  if (verb === "post" && rule.body !== "") {
    return { procedure, httpMethod: "POST", path, ...bodyOf(method.input, rule.body), write };
  }
  throw new Error(`${method}: the gateway supports \`get\` without a body and \`post\` with a body`);
}

/** The body is the whole message (`*`), or the value of its only field. Further fields could not be sent. */
function bodyOf(input: DescMessage, name: string): Pick<Route, "body" | "read"> {
  if (name === "*") {
    return { body: { shape: shapeOfMessage(input), fieldName: undefined }, read: compileReader(input) };
  }
  const [field, ...others] = input.fields;
  const shape = field?.name === name && others.length === 0 ? shapeOfField(field) : undefined;
  if (field === undefined || shape === undefined) {
    throw new Error(`${input}: \`body: "${name}"\` must name its only field, a message or a list of messages`);
  }
  return { body: { shape, fieldName: field.jsonName }, read: compileFieldReader(field) };
}

/** `response_body` names the field that becomes `data`. A field of type Pagination becomes `pagination`. */
function writerOf({ output }: DescMethodUnary, { responseBody }: HttpRule): Route["write"] {
  if (responseBody === "") {
    const write = compileWriter(output);
    return memoizeEncoding((response) => messageMembers(write(response)));
  }
  const data = output.fields.find(({ name }) => name === responseBody);
  if (data === undefined) throw new Error(`${output}: has no field ${responseBody} for the response body`);
  const pagination = output.fields.find(({ message }) => message?.typeName === PaginationSchema.typeName);
  const writeData = compileFieldWriter(data);
  const writePagination = pagination && compileFieldWriter(pagination);
  return (response) => messageMembers(writeData(response) ?? "null", writePagination?.(response));
}
