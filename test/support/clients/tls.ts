import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { type ConnectionOptions, connect, type TLSSocket } from "node:tls";
import { fromBinary } from "@bufbuild/protobuf";
import { createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { WorkspacesService } from "../../../gen/latchkey/v1/workspaces_service_pb.js";
import { operatorKey, type TestApp } from "../harness.js";
import { pathOf } from "../operations.js";
import { callUnary, openGrpcJs, type Trust } from "./grpc-js.js";
import { headersOf } from "./headers.js";

/** One call with each kind of client, over TLS. Each resolves to the number of workspaces, or rejects. */
export function callers({ httpUrl, grpcAddress }: TestApp, trust: Trust) {
  const grpcUrl = `https://${grpcAddress}`;
  const secured = { httpVersion: "1.1", nodeOptions: trust } as const;
  return {
    http: () => callHttp(httpUrl, trust),
    connect: () => callConnect(createConnectTransport({ baseUrl: httpUrl, ...secured })),
    "grpc-web": () => callConnect(createGrpcWebTransport({ baseUrl: httpUrl, ...secured })),
    "grpc, by connect-node": () => callConnect(createGrpcTransport({ baseUrl: grpcUrl, nodeOptions: trust })),
    "grpc, by grpc-js": () => callGrpcJs(grpcAddress, trust),
  };
}

async function callHttp(httpUrl: string, trust: Trust): Promise<number> {
  const sent = request(`${httpUrl}/v2/workspaces.listWorkspaces`, { method: "POST", headers, ...trust, agent: false });
  sent.end();
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return JSON.parse(Buffer.concat(await response.toArray()).toString()).data.length;
}

async function callConnect(transport: Transport): Promise<number> {
  const { workspaces } = await createClient(WorkspacesService, transport).listWorkspaces({}, { headers });
  return workspaces.length;
}

async function callGrpcJs(address: string, trust: Trust): Promise<number> {
  const client = openGrpcJs(address, trust);
  const { bytes, error } = await callUnary(client, pathOf(listWorkspaces), headersOf(operatorKey));
  client.close();
  if (error) throw error;
  return fromBinary(listWorkspaces.output, bytes).workspaces.length;
}

const listWorkspaces = WorkspacesService.method.listWorkspaces;
const headers = { authorization: `Bearer ${operatorKey}` };

/** A bare TLS connection to either port. */
export async function connectTls(address: string, options: ConnectionOptions): Promise<TLSSocket> {
  const { hostname, port } = new URL(address.includes("://") ? address : `https://${address}`);
  const socket = connect(Number(port), hostname, { ALPNProtocols: ["h2", "http/1.1"], ...options });
  await once(socket, "secureConnect");
  socket.on("error", () => {});
  return socket;
}
