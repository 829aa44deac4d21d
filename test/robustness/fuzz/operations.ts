import { type DescMethodUnary, getOption } from "@bufbuild/protobuf";
import { http } from "../../../gen/google/api/annotations_pb.js";
import { access } from "../../../gen/latchkey/v1/access_pb.js";
import { rpcs } from "../../support/rpcs.js";

/** One way to call an operation over HTTP. */
export interface HttpRoute {
  readonly verb: "GET" | "POST";
  readonly path: string;
  /** The member of the request whose value is the whole body. Undefined: the whole request. */
  readonly bodyField: string | undefined;
  /** The member of the response that becomes `data`. Undefined: the whole response. */
  readonly data: string | undefined;
}

/** One operation, read from its descriptor. New RPCs are therefore fuzzed automatically. */
export interface Operation {
  readonly name: string;
  readonly rpc: DescMethodUnary;
  /** Its path in gRPC, gRPC-Web and Connect. */
  readonly rpcPath: string;
  readonly routes: readonly HttpRoute[];
  /** Whether a workspace's key may call it; otherwise only the operator. */
  readonly forKeys: boolean;
}

/** Every operation of the service. */
export const operations: readonly Operation[] = rpcs.map(({ method }) => toOperation(method));

/** Reads an operation from its descriptor. */
export function toOperation(rpc: DescMethodUnary): Operation {
  return {
    name: rpc.localName,
    rpc,
    rpcPath: `/${rpc.parent.typeName}/${rpc.name}`,
    routes: routesOf(rpc),
    forKeys: getOption(rpc, access).scope !== "",
  };
}

/** Returns the operation with this name, and throws if there is none. */
export function operationNamed(name: string): Operation {
  const found = operations.find((operation) => operation.name === name);
  if (found === undefined) throw new Error(`there is no operation ${name}`);
  return found;
}

/** The member of the request whose value is the whole body over HTTP; undefined if the body is the request. */
export function bodyFieldOf({ routes }: Operation): string | undefined {
  return routes.find(({ verb }) => verb === "POST")?.bodyField;
}

function routesOf(rpc: DescMethodUnary): HttpRoute[] {
  const rule = getOption(rpc, http);
  return [rule, ...rule.additionalBindings].map(({ pattern, body, responseBody }) => ({
    verb: pattern.case === "get" ? "GET" : "POST",
    path: String(pattern.value),
    bodyField: rpc.input.fields.find(({ name }) => name === body)?.jsonName,
    data: rpc.output.fields.find(({ name }) => name === responseBody)?.jsonName,
  }));
}
