import { openSql } from "../../commands/open-sql.js";
import type { Bench } from "../bench.js";
import { verifyEach, verifyPath } from "../grpc-verify.js";
import { verifyRequests } from "../http-verify.js";
import { createFixture, type Latchkey, startLatchkey } from "../latchkey.js";
import { grpcRequest } from "../load/grpc.js";
import { type HttpRequest, inTurn, postRequest } from "../load/http.js";
import { openGrpcClients, openHttpClients } from "./clients.js";
import type { Clients } from "./offer.js";

/** An operation that is measured under overload. */
export interface Subject {
  readonly name: string;
  readonly title: string;
  open(bench: Bench): Promise<ServiceWithClients>;
}

/** A running service with its clients. */
export interface ServiceWithClients {
  readonly latchkey: Latchkey;
  readonly clients: Clients;
}

const httpConnections = 64;
const grpcConnections = 64;

/** The service counts shed calls by reason; the clients cannot know the reason. */
const env = { METRICS_PORT: "0" };

export const subjects: readonly Subject[] = [
  {
    name: "http-verify",
    title: "HTTP keys.verifyKey",
    async open(bench) {
      const latchkey = await startLatchkey(bench, { env });
      return overHttp(bench, latchkey, inTurn(verifyRequests(await createFixture(latchkey))));
    },
  },
  {
    name: "grpc-verify",
    title: "gRPC VerifyKey",
    async open(bench) {
      const latchkey = await startLatchkey(bench, { env });
      const fixture = await createFixture(latchkey);
      const exchanges = await verifyEach(latchkey, fixture);
      const next = inTurn(exchanges.map(({ request, response }) => grpcRequest(request, response)));
      const options = { port: latchkey.grpcPort, path: verifyPath, credential: fixture.caller, next };
      return closeWithRow(bench, latchkey, await openGrpcClients({ ...options, connections: grpcConnections }));
    },
  },
  {
    name: "http-create",
    title: "HTTP identities.createIdentity, with 20 ms per insert in PostgreSQL",
    async open(bench) {
      const latchkey = await startLatchkey(bench, { env });
      const { first } = await createFixture(latchkey, 1);
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

/** Makes the database the bottleneck. It sleeps instead of computing, because the other processes need the CPU. */
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
): Promise<ServiceWithClients> {
  return closeWithRow(bench, latchkey, await openHttpClients({ port: latchkey.httpPort, connections, next }));
}

function closeWithRow(bench: Bench, latchkey: Latchkey, clients: Clients): ServiceWithClients {
  bench.defer(() => clients.close());
  return { latchkey, clients };
}
