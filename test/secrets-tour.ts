import { type DescMessage, type DescMethodUnary, fromBinary, toBinary, toJsonString } from "@bufbuild/protobuf";
import { Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import { IdentitiesService } from "../gen/latchkey/v1/identities_service_pb.js";
import { KeysService } from "../gen/latchkey/v1/keys_service_pb.js";
import { WorkspacesService } from "../gen/latchkey/v1/workspaces_service_pb.js";
import { toRequestMessage } from "./contract/messages.js";
import { postText } from "./gateway/http.js";
import type { TestApp } from "./harness.js";

/** Every RPC by the name that HTTP has for it, read from the descriptors so that none is forgotten. */
export const rpcs = new Map(
  [KeysService, IdentitiesService, WorkspacesService].flatMap((service) =>
    service.methods.map((rpc) => [
      `${service.name.replace("Service", "").toLowerCase()}.${rpc.localName}`,
      rpc as DescMethodUnary,
    ]),
  ),
);

/** What a caller was answered, as text, headers and trailers included. */
export interface Told {
  readonly operation: string;
  readonly ok: boolean;
  readonly text: string;
}

/** A way to call: with a request that can be written, or with any text or bytes in its place. */
export interface TourDoor {
  call(operation: string, key: string | undefined, body: Readonly<Record<string, unknown>> | string): Promise<Told>;
  close(): void;
}

export function openHttpTour(app: TestApp): TourDoor {
  return {
    async call(operation, key, body) {
      const sent = typeof body === "string" ? body : JSON.stringify(body);
      const { status, headers, text } = await postText(app.httpUrl, `/v2/${operation}`, key, sent);
      return { operation, ok: status === 200, text: JSON.stringify(headers) + text };
    },
    close: () => {},
  };
}

export function openGrpcTour(app: TestApp): TourDoor {
  const client = new Client(app.grpcAddress, credentials.createInsecure());
  return {
    call(operation, key, body) {
      const rpc = rpcs.get(operation);
      if (rpc === undefined) throw new Error(`there is no ${operation}`);
      const bytes =
        typeof body === "string" ? Buffer.from(body) : toBinary(rpc.input, toRequestMessage(rpc.input, body));
      const metadata = new Metadata();
      if (key !== undefined) metadata.set("authorization", `Bearer ${key}`);
      return new Promise((resolve) => {
        client.makeUnaryRequest<Uint8Array, Uint8Array>(
          `/${rpc.parent.typeName}/${rpc.name}`,
          (request) => Buffer.from(request),
          (response) => response,
          bytes,
          metadata,
          (error, response) =>
            resolve({
              operation,
              ok: error === null,
              text: error ? errorText(error) : answerText(rpc.output, response),
            }),
        );
      });
    },
    close: () => client.close(),
  };
}

/** A request of every RPC, in an order in which each succeeds. */
export function requestsFor(
  workspaceId: string,
  { keyId, key }: { keyId: string; key: string },
): [string, Record<string, unknown>][] {
  return [
    ["workspaces.createWorkspace", { name: "another" }],
    ["workspaces.disableWorkspace", { workspaceId, reason: "OWNER_REQUEST" }],
    ["workspaces.enableWorkspace", { workspaceId }],
    ["workspaces.getWorkspace", { workspaceId }],
    ["workspaces.listWorkspaces", {}],
    ["identities.createIdentity", { externalId: "user" }],
    ["identities.updateIdentity", { externalId: "user", meta: { a: 1 } }],
    ["identities.getIdentity", { externalId: "user" }],
    ["identities.listIdentities", {}],
    ["keys.createKey", { externalId: "user", prefix: "sk_live_123" }],
    ["keys.updateKey", { keyId, name: "new" }],
    ["keys.verifyKey", { key, permissions: "documents.read OR documents.write" }],
    ["keys.verifyKey", { key, permissions: "documents.write" }],
    ["keys.whoami", { key }],
    ["keys.getKey", { keyId }],
    ["keys.listKeys", {}],
    ["keys.rerollKey", { keyId }],
    ["keys.verifyKey", { key }],
    ["keys.deleteKey", { keyId }],
    ["identities.deleteIdentity", { externalId: "user" }],
    ["workspaces.listAuditEvents", { workspaceId }],
  ];
}

function answerText(schema: DescMessage, bytes: Uint8Array = new Uint8Array()): string {
  return toJsonString(schema, fromBinary(schema, bytes));
}

/** Message and metadata; what is binary, byte by byte, so that a text within it is found. */
function errorText({ message, details, metadata }: ServiceError): string {
  const values = Object.keys(metadata.getMap()).flatMap((name) => metadata.get(name));
  return [message, details, ...values.map((value) => value.toString("latin1"))].join();
}
