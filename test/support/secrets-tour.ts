import { createHash } from "node:crypto";
import { type DescMethodUnary, fromBinary, toBinary, toJsonString } from "@bufbuild/protobuf";
import type { ServiceError } from "@grpc/grpc-js";
import { mintSecret } from "../../src/keys/secret.js";
import { callUnary, openGrpcJs } from "./clients/grpc-js.js";
import { headersOf } from "./clients/headers.js";
import { send } from "./clients/http-requests.js";
import { toBody, toRequestMessage } from "./clients/messages.js";
import type { TestApp } from "./harness.js";
import { type HttpRoute, pathOf as rpcPathOf } from "./operations.js";
import { rpcs as allRpcs } from "./rpcs.js";

/** Every RPC by its HTTP operation name, such as `keys.createKey`, read from the descriptors so that none is missing. */
export const rpcs = new Map(allRpcs.map(({ method, routes }) => [routeOf(routes)[1].replace("/v2/", ""), method]));

function routeOf(routes: readonly HttpRoute[]): HttpRoute {
  const found = routes.find(([, path]) => path.startsWith("/v2/"));
  if (found === undefined) throw new Error(`${routes} has no path that begins with /v2/`);
  return found;
}

/** A response as text, headers and trailers included. */
export interface TourResponse {
  readonly operation: string;
  readonly ok: boolean;
  readonly text: string;
}

/** A client that sends a request, or any text or bytes in its place. */
export interface TourClient {
  call(
    operation: string,
    key: string | undefined,
    body: Readonly<Record<string, unknown>> | string,
  ): Promise<TourResponse>;
  close(): void;
}

/** Headers that the service ignores or uses for one purpose only. Their values must not appear in any output. */
export const headers: Readonly<Record<string, string>> = Object.fromEntries(
  [
    "accept-language",
    "baggage",
    "cookie",
    "forwarded",
    "proxy-authorization",
    "referer",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-api-key",
    "x-forwarded-for",
    "x-made-up",
    "x-request-id",
  ].map((name) => [name, mintSecret("header").plaintext]),
);

export function openHttpTour(app: TestApp): TourClient {
  return openJsonTour(
    app,
    (operation) => `/v2/${operation}`,
    (body, operation) => {
      const { routes } = allRpcs.find(({ method }) => method === rpcOf(operation)) ?? { routes: [] };
      return JSON.stringify(toBody(body, routeOf(routes)[2]));
    },
  );
}

export function openConnectTour(app: TestApp): TourClient {
  return openJsonTour(app, pathOf, (body, operation) => {
    const { input } = rpcOf(operation);
    return toJsonString(input, toRequestMessage(input, body));
  });
}

/** A client of a protocol on the HTTP port, given its paths and its JSON encoding. */
function openJsonTour(
  app: TestApp,
  path: (operation: string) => string,
  write: (body: Readonly<Record<string, unknown>>, operation: string) => string,
): TourClient {
  return {
    async call(operation, key, body) {
      const response = await send(app.httpUrl, path(operation), {
        ...(key !== undefined && { key }),
        headers: { ...headers, "content-type": "application/json" },
        body: typeof body === "string" ? body : write(body, operation),
      });
      return { operation, ok: response.status === 200, text: JSON.stringify(response.headers) + response.text };
    },
    close: () => {},
  };
}

export function openGrpcTour(app: TestApp): TourClient {
  const client = openGrpcJs(app.grpcAddress);
  return {
    async call(operation, key, body) {
      const rpc = rpcOf(operation);
      const bytes =
        typeof body === "string" ? Buffer.from(body) : toBinary(rpc.input, toRequestMessage(rpc.input, body));
      const lines = headersOf(key ?? [], Object.entries(headers));
      const response = await callUnary(client, pathOf(operation), lines, bytes);
      const { error } = response;
      const text = error ? errorText(error) : toJsonString(rpc.output, fromBinary(rpc.output, response.bytes));
      return { operation, ok: error === undefined, text };
    },
    close: () => client.close(),
  };
}

function rpcOf(operation: string): DescMethodUnary {
  const rpc = rpcs.get(operation);
  if (rpc === undefined) throw new Error(`there is no ${operation}`);
  return rpc;
}

/** The path of an operation over gRPC and Connect. */
export function pathOf(operation: string): string {
  return rpcPathOf(rpcOf(operation));
}

/** A resource of each kind that requests must refer to by an id. */
export interface TourThings {
  readonly keyId: string;
  readonly key: string;
  readonly apiId: string;
  /** A secret to import. */
  readonly imported: string;
  /** A workspace to delete. */
  readonly spareWorkspaceId: string;
}

/** A request of every RPC, in an order in which each succeeds. */
export function requestsFor(
  workspaceId: string,
  { keyId, key, apiId, imported, spareWorkspaceId }: TourThings,
): [string, Record<string, unknown>][] {
  const perMinute = { limit: 100, duration: 60_000 };
  const override = { namespace: "email.send", identifier: "user" };
  const hash = createHash("sha256").update(imported).digest("base64");
  return [
    ["workspaces.createWorkspace", { name: "another" }],
    ["workspaces.createRootKey", { workspaceId }],
    ["workspaces.disableWorkspace", { workspaceId, reason: "OWNER_REQUEST" }],
    ["workspaces.updateWorkspace", { workspaceId, name: "renamed" }],
    ["workspaces.enableWorkspace", { workspaceId }],
    ["workspaces.disableWorkspace", { workspaceId: spareWorkspaceId, reason: "ACCOUNT_CLOSURE" }],
    ["workspaces.deleteWorkspace", { workspaceId: spareWorkspaceId }],
    ["workspaces.getWorkspace", { workspaceId }],
    ["workspaces.listWorkspaces", {}],
    ["identities.createIdentity", { externalId: "user" }],
    ["identities.updateIdentity", { externalId: "user", meta: { a: 1 } }],
    ["identities.getIdentity", { externalId: "user" }],
    ["identities.listIdentities", {}],
    ["apis.createApi", { name: "payments" }],
    ["apis.getApi", { apiId }],
    ["apis.listApis", {}],
    ["permissions.createPermission", { name: "Print", slug: "documents.print" }],
    ["permissions.getPermission", { permission: "documents.print" }],
    ["permissions.listPermissions", { search: "print" }],
    ["permissions.createRole", { name: "printer", permissions: ["documents.print"] }],
    ["permissions.getRole", { role: "printer" }],
    ["permissions.listRoles", { search: "print" }],
    ["permissions.setRolePermissions", { roleId: "printer", permissions: ["documents.scan"] }],
    ["ratelimit.setOverride", { ...override, ...perMinute }],
    ["ratelimit.getOverride", override],
    ["ratelimit.listOverrides", { namespace: override.namespace }],
    ["ratelimit.limit", { ...override, ...perMinute }],
    ["ratelimit.multiLimit", { limits: [{ ...override, ...perMinute }] }],
    ["keys.createKey", { externalId: "user", prefix: "sk_live_123", apiId, roles: ["printer"] }],
    ["keys.migrateKeys", { migrationId: "from another service", apiId, keys: [{ hash, externalId: "user" }] }],
    ["keys.verifyKey", { key: imported }],
    ["keys.updateKey", { keyId, name: "new", ratelimits: [{ name: "requests", ...perMinute, autoApply: true }] }],
    ["keys.updateCredits", { keyId, operation: "set", value: 1000 }],
    ["keys.addPermissions", { keyId, permissions: ["documents.scan"] }],
    ["keys.removePermissions", { keyId, permissions: ["documents.scan"] }],
    ["keys.setPermissions", { keyId, permissions: ["documents.read"] }],
    ["keys.addRoles", { keyId, roles: ["printer"] }],
    ["keys.removeRoles", { keyId, roles: ["printer"] }],
    ["keys.setRoles", { keyId, roles: ["printer"] }],
    ["keys.verifyKey", { key, permissions: "documents.read OR documents.write" }],
    ["keys.verifyKey", { key, permissions: "documents.write" }],
    ["keys.verifyKey", { key, credits: { cost: 2 }, ratelimits: [{ name: "requests", cost: 2 }], tags: ["path=/"] }],
    ["keys.getUsage", { keyId }],
    ["identities.getUsage", { externalId: "user" }],
    ["keys.whoami", { key }],
    ["keys.getKey", { keyId }],
    ["keys.listKeys", {}],
    ["keys.rerollKey", { keyId }],
    ["keys.verifyKey", { key }],
    ["keys.deleteKey", { keyId }],
    ["identities.deleteIdentity", { externalId: "user" }],
    ["apis.deleteApi", { apiId }],
    ["ratelimit.deleteOverride", override],
    ["permissions.deleteRole", { role: "printer" }],
    ["permissions.deletePermission", { permission: "documents.print" }],
    ["workspaces.listAuditEvents", { workspaceId }],
  ];
}

/** The message and metadata of an error. Binary values are decoded byte by byte, so that a text in them is found. */
function errorText({ message, details, metadata }: ServiceError): string {
  const values = Object.keys(metadata.getMap()).flatMap((name) => metadata.get(name));
  return [message, details, ...values.map((value) => value.toString("latin1"))].join();
}
