import { type DescMethodUnary, fromJson, type JsonObject, toBinary } from "@bufbuild/protobuf";
import { Metadata } from "@grpc/grpc-js";
import { IdentitiesService } from "../../../../gen/latchkey/v1/identities_service_pb.js";
import { KeysService } from "../../../../gen/latchkey/v1/keys_service_pb.js";
import { WorkspacesService } from "../../../../gen/latchkey/v1/workspaces_service_pb.js";
import { pathOf } from "../../operations.js";

/** The operations that the tests call, with their HTTP paths. */
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
  deleteWorkspace: [WorkspacesService.method.deleteWorkspace, "/v2/workspaces.deleteWorkspace"],
} as const satisfies Record<string, readonly [DescMethodUnary, string]>;

export type OperationName = keyof typeof operations;

/** A call, encoded for each protocol. It is encoded once and sent many times, so that the clients use little CPU. */
export interface Request {
  readonly operation: OperationName;
  readonly method: DescMethodUnary;
  readonly grpc: { readonly path: string; readonly metadata: Metadata; readonly bytes: Buffer };
  /** Headers and body. */
  readonly http: Buffer;
  /** Connect: the headers without the empty line at their end, the body, and both. */
  readonly connect: { readonly headers: string; readonly body: string; readonly whole: Buffer };
}

/**
 * @param protoJson the body over Connect and gRPC, where ProtoJSON differs from the JSON of HTTP
 * @param idempotencyKey allows to retry the request until it gets a response
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
  const headers = [
    `POST ${path} HTTP/1.1`,
    "Host: test",
    `Authorization: Bearer ${credential}`,
    ...(idempotencyKey === undefined ? [] : [`Idempotency-Key: ${idempotencyKey}`]),
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(json)}`,
  ];
  const connectHeaders = [
    `POST ${pathOf(method)} HTTP/1.1`,
    ...headers.slice(1, -1),
    `Content-Length: ${Buffer.byteLength(protoText)}`,
  ].join("\r\n");
  return {
    operation,
    method,
    grpc: { path: pathOf(method), metadata, bytes },
    http: Buffer.from(`${headers.join("\r\n")}\r\n\r\n${json}`),
    connect: {
      headers: connectHeaders,
      body: protoText,
      whole: Buffer.from(`${connectHeaders}\r\n\r\n${protoText}`),
    },
  };
}
