import { type DescMethodUnary, fromJson, type JsonObject, toBinary } from "@bufbuild/protobuf";
import { Metadata } from "@grpc/grpc-js";
import { IdentitiesService } from "../../../gen/latchkey/v1/identities_service_pb.js";
import { KeysService } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { WorkspacesService } from "../../../gen/latchkey/v1/workspaces_service_pb.js";

/** The operations that the laboratory calls, with their HTTP paths. */
const operations = {
  verifyKey: [KeysService.method.verifyKey, "/v2/keys.verifyKey"],
  listKeys: [KeysService.method.listKeys, "/v1/keys.listKeys"],
  getIdentity: [IdentitiesService.method.getIdentity, "/v1/identities.getIdentity"],
  updateIdentity: [IdentitiesService.method.updateIdentity, "/v2/identities.updateIdentity"],
  createKey: [KeysService.method.createKey, "/v2/keys.createKey"],
  updateKey: [KeysService.method.updateKey, "/v2/keys.updateKey"],
  deleteKey: [KeysService.method.deleteKey, "/v2/keys.deleteKey"],
  rerollKey: [KeysService.method.rerollKey, "/v2/keys.rerollKey"],
  createWorkspace: [WorkspacesService.method.createWorkspace, "/v2/workspaces.createWorkspace"],
  disableWorkspace: [WorkspacesService.method.disableWorkspace, "/v2/workspaces.disableWorkspace"],
  enableWorkspace: [WorkspacesService.method.enableWorkspace, "/v2/workspaces.enableWorkspace"],
} as const satisfies Record<string, readonly [DescMethodUnary, string]>;

export type OperationName = keyof typeof operations;

/** A call in the form in which each protocol sends it, made once and sent many times: the client has to be light. */
export interface Request {
  readonly operation: OperationName;
  readonly method: DescMethodUnary;
  readonly grpc: { readonly path: string; readonly metadata: Metadata; readonly bytes: Buffer };
  /** Head and body. */
  readonly http: Buffer;
  /** Over Connect: the head without the empty line that ends it, the body, and both. */
  readonly connect: { readonly head: string; readonly body: string; readonly whole: Buffer };
}

/**
 * `body` is the JSON of HTTP; where ProtoJSON writes a value in another way, `protoJson` says so. With an idempotency key,
 * the request can be sent again until it is answered.
 */
export function prepare(
  operation: OperationName,
  credential: string,
  body: JsonObject,
  protoJson: JsonObject = body,
  idempotencyKey?: string,
): Request {
  const [method, path] = operations[operation];
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${credential}`);
  if (idempotencyKey !== undefined) metadata.set("idempotency-key", idempotencyKey);
  const bytes = Buffer.from(toBinary(method.input, fromJson(method.input, protoJson)));
  const json = JSON.stringify(body);
  const protoText = JSON.stringify(protoJson);
  const head = [
    `POST ${path} HTTP/1.1`,
    "Host: laboratory",
    `Authorization: Bearer ${credential}`,
    ...(idempotencyKey === undefined ? [] : [`Idempotency-Key: ${idempotencyKey}`]),
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(json)}`,
  ];
  const connectHead = [
    `POST /${method.parent.typeName}/${method.name} HTTP/1.1`,
    ...head.slice(1, -1),
    `Content-Length: ${Buffer.byteLength(protoText)}`,
  ].join("\r\n");
  return {
    operation,
    method,
    grpc: { path: `/${method.parent.typeName}/${method.name}`, metadata, bytes },
    http: Buffer.from(`${head.join("\r\n")}\r\n\r\n${json}`),
    connect: {
      head: connectHead,
      body: protoText,
      whole: Buffer.from(`${connectHead}\r\n\r\n${protoText}`),
    },
  };
}
