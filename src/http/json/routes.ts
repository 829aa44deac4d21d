import { type DescMessage, type DescMethodUnary, getOption, hasOption, type Message } from "@bufbuild/protobuf";
import { http } from "../../../gen/google/api/annotations_pb.js";
import type { HttpRule } from "../../../gen/google/api/http_pb.js";
import { PaginationSchema } from "../../../gen/latchkey/v1/pagination_pb.js";
import { memoizeEncoding } from "../../rpc/memoize-encoding.js";
import type { Procedure } from "../../rpc/pipeline.js";
import { compileQueryReader, compileReader, compileWriter, type ReadMessage } from "./codec.js";
import { successMembers } from "./envelope.js";

/** One way to call an RPC over HTTP, as its google.api.http annotation says. */
export interface Route {
  readonly procedure: Procedure;
  readonly httpMethod: "GET" | "POST";
  readonly path: string;
  /** Reads the request message from the parsed body or, for GET, from the query. */
  readonly read: ReadMessage;
  /** Writes a response message as the members of the envelope: `data` and, for lists, `pagination`. */
  readonly write: (response: Message) => string;
}

/** Reads the routes of all procedures from their descriptors. There is no other list of routes. */
export function routesOf(procedures: readonly Procedure[]): Route[] {
  return procedures.flatMap((procedure) => {
    const { method } = procedure;
    if (!hasOption(method, http)) throw new Error(`${method} has no HTTP path: give it the option (google.api.http)`);
    const rule = getOption(method, http);
    return [rule, ...rule.additionalBindings].map((binding) => routeOf(procedure, binding));
  });
}

function routeOf(procedure: Procedure, rule: HttpRule): Route {
  const { method } = procedure;
  const { case: verb, value: path } = rule.pattern;
  if (verb === "get" && rule.body === "") {
    return {
      procedure,
      httpMethod: "GET",
      path,
      read: compileQueryReader(method.input),
      write: writerOf(method, rule),
    };
  }
  if (verb === "post" && rule.body === "*") {
    return { procedure, httpMethod: "POST", path, read: compileReader(method.input), write: writerOf(method, rule) };
  }
  throw new Error(`${method}: the gateway serves \`get\` without a body and \`post\` with \`body: "*"\``);
}

/** `response_body` names the field that is the data; a Pagination beside it is the list's. */
function writerOf({ output }: DescMethodUnary, { responseBody }: HttpRule): Route["write"] {
  const write = compileWriter(output);
  if (responseBody === "") return memoizeEncoding((response) => successMembers(write(response)));
  const dataName = jsonNameOf(output, ({ name }) => name === responseBody);
  if (dataName === undefined) throw new Error(`${output}: has no field ${responseBody} to be the response body`);
  const pageName = jsonNameOf(output, ({ message }) => message?.typeName === PaginationSchema.typeName);
  return memoizeEncoding((response) => {
    const json = write(response);
    return successMembers(json[dataName], pageName && json[pageName]);
  });
}

function jsonNameOf(schema: DescMessage, matches: (field: DescMessage["fields"][number]) => boolean) {
  return schema.fields.find(matches)?.jsonName;
}
