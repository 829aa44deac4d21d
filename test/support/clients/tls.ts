import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { type ConnectionOptions, connect, type TLSSocket } from "node:tls";
import { fromBinary } from "@bufbuild/protobuf";
import { createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import { ListWorkspacesResponseSchema, WorkspacesService } from "../../../gen/latchkey/v1/workspaces_service_pb.js";
import { operatorKey, type TestApp } from "../harness.js";

/** A client's certificate and the CA that it trusts, in PEM format. */
export interface Trust {
  readonly ca: string;
  readonly cert?: string;
  readonly key?: string;
}

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

async function callGrpcJs(address: string, { ca, cert, key }: Trust): Promise<number> {
  const [root, chain, secret] = [ca, cert, key].map((pem) => (pem === undefined ? null : Buffer.from(pem)));
  const client = new Client(address, credentials.createSsl(root, secret, chain));
  const metadata = new Metadata();
  metadata.set("authorization", headers.authorization);
  const path = "/latchkey.v1.WorkspacesService/ListWorkspaces";
  const asIs = (bytes: Buffer) => bytes;
  try {
    return await new Promise((resolve, reject) => {
      client.makeUnaryRequest(path, asIs, asIs, Buffer.alloc(0), metadata, (error, bytes) =>
        error ? reject(error) : resolve(fromBinary(ListWorkspacesResponseSchema, bytes ?? empty).workspaces.length),
      );
    });
  } finally {
    client.close();
  }
}

const empty = new Uint8Array();
const headers = { authorization: `Bearer ${operatorKey}` };

/** A bare TLS connection to either port. */
export async function connectTls(address: string, options: ConnectionOptions): Promise<TLSSocket> {
  const { hostname, port } = new URL(address.includes("://") ? address : `https://${address}`);
  const socket = connect(Number(port), hostname, { ALPNProtocols: ["h2", "http/1.1"], ...options });
  await once(socket, "secureConnect");
  socket.on("error", () => {});
  return socket;
}
