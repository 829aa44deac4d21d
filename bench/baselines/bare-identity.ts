// A bare Fastify route that runs the statement of identities.getIdentity with postgres.js, on a pool as large as
// Latchkey's and, as there, with statements that are prepared once. It has one fixed workspace and no authentication.
import { fastify } from "fastify";
import { openSql } from "../../commands/open-sql.js";
import { printAddress } from "./response.js";

const { DATABASE_URL = "", WORKSPACE_ID = "" } = process.env;
const requestId = "req_00000000000000000000000000";
const sql = openSql(DATABASE_URL, { max: 10 });
const server = fastify();
server.post<{ Body: { externalId: string } }>("/v2/identities.getIdentity", async ({ body }, reply) => {
  const [row] = await sql`
    select identity_id, external_id, meta, ratelimits, created_at, updated_at from identities
    where workspace_id = ${WORKSPACE_ID} and external_id = ${body.externalId} and deleted_at is null`;
  if (row === undefined) return reply.code(404).send();
  return {
    meta: { requestId },
    data: {
      identityId: row["identity_id"],
      externalId: row["external_id"],
      meta: row["meta"],
      createdAt: row["created_at"].getTime(),
      updatedAt: row["updated_at"].getTime(),
    },
  };
});
printAddress(await server.listen({ host: "127.0.0.1", port: 0 }));
