import type postgres from "postgres";
import { openSql } from "../../../commands/open-sql.js";
import { mintId } from "../../../src/ids.js";
import { mintSecret } from "../../../src/keys/secret.js";
import { openUnchecked, type UncheckedClient } from "../../support/clients/unchecked.js";
import type { SoakedService } from "./service.js";

/** The workspace and the credentials that the calls use. */
export interface Fixture {
  readonly workspaceId: string;
  /** A key of the workspace with all scopes. */
  readonly key: string;
  readonly operatorKey: string;
  /** Creates another workspace and returns its id. */
  createWorkspace(): Promise<string>;
}

export async function createFixture(service: SoakedService): Promise<Fixture> {
  const { operatorKey } = service;
  const create = async () => {
    const client = openUnchecked("HTTP", service);
    const outcome = await client.call("createWorkspace", operatorKey, { name: "soak" }).finally(client.close);
    if (outcome.kind !== "success") throw new Error(`no workspace could be created: ${JSON.stringify(outcome)}`);
    return outcome.data as { workspaceId: string; key: string };
  };
  return { ...(await create()), operatorKey, createWorkspace: async () => (await create()).workspaceId };
}

/** The maximum size of the change log; see src/revocation/change-log.ts. */
const maxLoggedChanges = 100_000;

/** A larger change of one workspace is not logged row by row; see src/revocation/change-store.ts. */
const batchSize = 900;

/** More keys than fit into the cache of the soak. */
const keyCount = 8_000;

/** Fills the change log and the key cache. Otherwise they would fill for an hour and look like a leak. */
export async function fillCaches(databaseUrl: string, service: SoakedService, fixture: Fixture): Promise<void> {
  const sql = openSql(databaseUrl, { max: 1, onnotice: () => {} });
  const client = openUnchecked("HTTP", service);
  try {
    await fillChanges(sql, service, fixture);
    await fillKeys(sql, client, fixture);
  } finally {
    client.close();
    await sql.end();
  }
}

/** More changes than the log has entries, because V8 doubles the capacity of a Map once under such replacement. */
const changeCount = 1.5 * maxLoggedChanges;

/** An id of a number. It is as long as a minted one, so that changes of minted ids take no more memory. */
const fillerId = (sql: postgres.Sql) => sql`'id_' || lpad(number::text, 26, '0')`;

async function fillChanges(sql: postgres.Sql, service: SoakedService, { workspaceId }: Fixture): Promise<void> {
  await sql`
    insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
    select ${fillerId(sql)}, ${workspaceId}, 'filler_' || number, '{}', now(), now()
    from generate_series(1, ${maxLoggedChanges + batchSize}::int) as number`;
  for (let changes = 0; changes < changeCount; changes += batchSize) {
    const from = changes % (maxLoggedChanges + batchSize);
    await sql`
      update identities set updated_at = updated_at + interval '1 ms' where identity_id in
        (select ${fillerId(sql)} from generate_series(${from + 1}::int, ${from + batchSize}::int) as number)`;
    const [row] = await sql<{ xmax: number }[]>`
      select pg_snapshot_xmax(pg_current_snapshot())::text::float8 as xmax`;
    while ((await service.readMetric("known_transaction_id")) < (row?.xmax ?? 0))
      await new Promise((next) => setTimeout(next, 20));
  }
}

async function fillKeys(sql: postgres.Sql, client: UncheckedClient, { workspaceId, key }: Fixture): Promise<void> {
  const secrets = Array.from({ length: keyCount }, () => mintSecret());
  const ids = secrets.map(() => mintId("key"));
  await sql`
    insert into keys (key_id, workspace_id, hash, start, enabled, permissions, created_at, updated_at)
    select id, ${workspaceId}, decode(hash, 'hex'), 'lk_fill', true, '{}', now(), now()
    from unnest(${ids}::text[], ${secrets.map(({ hash }) => hash)}::text[]) as made (id, hash)`;
  const remaining = [...secrets];
  const verifyAll = async () => {
    for (let next = remaining.pop(); next !== undefined; next = remaining.pop()) {
      await client.call("verifyKey", key, { key: next.plaintext });
    }
  };
  await Promise.all(Array.from({ length: 16 }, verifyAll));
}
