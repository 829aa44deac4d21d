import type { Bench } from "../bench.js";
import { verifyEach, verifyPath } from "../grpc-verify.js";
import { verifyRequests } from "../http-verify.js";
import { createScene, type Latchkey, startLatchkey } from "../latchkey.js";
import { grpcRequest, openGrpcLoad } from "../load/grpc.js";
import { type HttpRequest, inTurn, openHttpLoad, postRequest } from "../load/http.js";
import type { Load } from "../load/load.js";
import { openGrpcClients, openHttpClients } from "./clients.js";
import type { Clients } from "./offer.js";

/** An operation that is asked for more often than it can be answered. */
export interface Subject {
  readonly name: string;
  readonly title: string;
  open(bench: Bench): Promise<Stage>;
}

/** A service with those who call it. */
export interface Stage {
  readonly latchkey: Latchkey;
  /** Asks as fast as answers come. */
  readonly closedLoop: Load;
  /** Clients for a load that is offered, of a service that can answer so many calls a second. */
  openClients(capacity: number): Promise<Clients>;
}

/** As many calls are under way, of clients that ask as fast as they are answered. */
const underWay = 256;

/** So many that those who call never limit the load, and each of them is asked to call within a second or two. */
const httpConnections = (capacity: number) => Math.round(Math.min(3_000, Math.max(500, capacity / 2)));
const grpcConnections = 8;

export const subjects: readonly Subject[] = [
  {
    name: "http-verify",
    title: "HTTP keys.verifyKey",
    async open(bench) {
      const latchkey = await startLatchkey(bench);
      return overHttp(bench, latchkey, verifyRequests(await createScene(latchkey)));
    },
  },
  {
    name: "grpc-verify",
    title: "gRPC VerifyKey",
    async open(bench) {
      const latchkey = await startLatchkey(bench);
      const scene = await createScene(latchkey);
      const exchanges = await verifyEach(latchkey, scene);
      const next = inTurn(exchanges.map(({ request, response }) => grpcRequest(request, response)));
      const options = { port: latchkey.grpcPort, path: verifyPath, credential: scene.caller, next };
      const streams = underWay / grpcConnections;
      return staged(bench, latchkey, await openGrpcLoad({ ...options, connections: grpcConnections, streams }), () =>
        openGrpcClients({ ...options, connections: grpcConnections }),
      );
    },
  },
  {
    name: "http-identity",
    title: "HTTP identities.getIdentity, from the database",
    async open(bench) {
      const latchkey = await startLatchkey(bench);
      const { caller, keys } = await createScene(latchkey);
      const requests = keys.map(({ externalId }) => ({
        bytes: postRequest("/v2/identities.getIdentity", { externalId }, caller),
        expected: `"externalId":"${externalId}"`,
      }));
      return overHttp(bench, latchkey, requests);
    },
  },
];

async function overHttp(bench: Bench, latchkey: Latchkey, requests: readonly HttpRequest[]): Promise<Stage> {
  const options = { port: latchkey.httpPort, next: inTurn(requests) };
  return staged(bench, latchkey, await openHttpLoad({ ...options, connections: underWay }), (capacity) =>
    openHttpClients({ ...options, connections: httpConnections(capacity) }),
  );
}

function staged(bench: Bench, latchkey: Latchkey, closedLoop: Load, open: Stage["openClients"]): Stage {
  bench.defer(() => closedLoop.close());
  return {
    latchkey,
    closedLoop,
    async openClients(capacity) {
      const clients = await open(capacity);
      bench.defer(() => clients.close());
      return clients;
    },
  };
}
