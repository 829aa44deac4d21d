import { openSql } from "../../commands/open-sql.js";
import type { Bench } from "../bench.js";
import { verifyEach, verifyPath } from "../grpc-verify.js";
import { verifyRequests } from "../http-verify.js";
import { createScene, type Latchkey, startLatchkey } from "../latchkey.js";
import { grpcRequest } from "../load/grpc.js";
import { type HttpRequest, inTurn, postRequest } from "../load/http.js";
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
  readonly clients: Clients;
}

const httpConnections = 64;
const grpcConnections = 64;

/** What was turned away is also counted by the service, which knows why. */
const env = { METRICS_PORT: "0" };

export const subjects: readonly Subject[] = [
  {
    name: "http-verify",
    title: "HTTP keys.verifyKey",
    async open(bench) {
      const latchkey = await startLatchkey(bench, { env });
      return overHttp(bench, latchkey, inTurn(verifyRequests(await createScene(latchkey))));
    },
  },
  {
    name: "grpc-verify",
    title: "gRPC VerifyKey",
    async open(bench) {
      const latchkey = await startLatchkey(bench, { env });
      const scene = await createScene(latchkey);
      const exchanges = await verifyEach(latchkey, scene);
      const next = inTurn(exchanges.map(({ request, response }) => grpcRequest(request, response)));
      const options = { port: latchkey.grpcPort, path: verifyPath, credential: scene.caller, next };
      return staged(bench, latchkey, await openGrpcClients({ ...options, connections: grpcConnections }));
    },
  },
  {
    name: "http-create",
    title: "HTTP identities.createIdentity, on a database that takes 20 ms for each",
    async open(bench) {
      const latchkey = await startLatchkey(bench, { env });
      const { first } = await createScene(latchkey, 1);
      await slowDown(latchkey.databaseUrl);
      let created = 0;
      const next = () => ({
        bytes: postRequest("/v2/identities.createIdentity", { externalId: `user ${created++}` }, first),
        expected: '"identityId":"id_',
      });
      return overHttp(bench, latchkey, next, 512);
    },
  },
];

/** Has the database take its time, so that it is what everybody waits for: not by computing, which others here must do. */
async function slowDown(databaseUrl: string): Promise<void> {
  const sql = openSql(databaseUrl, { max: 1, onnotice: () => {} });
  await sql.unsafe(`
    create function take_time() returns trigger language plpgsql as $$ begin perform pg_sleep(0.02); return new; end $$;
    create trigger take_time before insert on identities for each row execute function take_time()`);
  await sql.end();
}

async function overHttp(
  bench: Bench,
  latchkey: Latchkey,
  next: () => HttpRequest,
  connections = httpConnections,
): Promise<Stage> {
  return staged(bench, latchkey, await openHttpClients({ port: latchkey.httpPort, connections, next }));
}

function staged(bench: Bench, latchkey: Latchkey, clients: Clients): Stage {
  bench.defer(() => clients.close());
  return { latchkey, clients };
}
