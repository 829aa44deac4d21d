import type postgres from "postgres";
import { openSql } from "../../../commands/open-sql.js";
import { mintId } from "../../../src/ids.js";
import { mintSecret } from "../../../src/keys/secret.js";
import { openHttp, type ProtocolClient } from "./protocol-clients.js";
import type { SoakedService } from "./service.js";

/** Whom the calls are about. */
export interface Scene {
  readonly workspaceId: string;
  /** A key of the workspace that may do everything. */
  readonly key: string;
  readonly operatorKey: string;
  /** Makes another workspace. */
  makeWorkspace(): Promise<string>;
}

export async function makeScene({ httpUrl, operatorKey }: SoakedService): Promise<Scene> {
  const make = async () => {
    const protocol = openHttp(httpUrl);
    const answer = await protocol.call("createWorkspace", operatorKey, { name: "soak" }).finally(protocol.close);
    if ("failed" in answer) throw new Error(`no workspace could be made: ${answer.failed}`);
    return answer.fields as { workspaceId: string; key: string };
  };
  return { ...(await make()), operatorKey, makeWorkspace: async () => (await make()).workspaceId };
}

/** What a process remembers at most of changes; see src/revocation/change-log.ts. */
const mostRemembered = 100_000;

/** Of more rows of one workspace at once, none is remembered by itself; see src/revocation/change-store.ts. */
const batch = 900;

/** More keys than are held with the cache that the soak has. */
const manyKeys = 8_000;

/** Fills what is bounded to its bounds, which would otherwise fill for an hour and look like a leak. */
export async function fillToTheBrim(databaseUrl: string, service: SoakedService, scene: Scene): Promise<void> {
  const sql = openSql(databaseUrl, { max: 1, onnotice: () => {} });
  const protocol = openHttp(service.httpUrl);
  try {
    await fillChanges(sql, service, scene);
    await fillKeys(sql, protocol, scene);
  } finally {
    protocol.close();
    await sql.end();
  }
}

/** So many, because a Map in which much is put in anew has twice the room of its entries at last: V8 doubles it once. */
const manyChanges = 1.5 * mostRemembered;

async function fillChanges(sql: postgres.Sql, service: SoakedService, { workspaceId }: Scene): Promise<void> {
  await sql`
    insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
    select 'id_filling_' || number, ${workspaceId}, 'filling_' || number, '{}', now(), now()
    from generate_series(1, ${mostRemembered + batch}::int) as number`;
  for (let changes = 0; changes < manyChanges; changes += batch) {
    const from = changes % (mostRemembered + batch);
    await sql`
      update identities set updated_at = updated_at + interval '1 ms' where identity_id in
        (select 'id_filling_' || number from generate_series(${from + 1}::int, ${from + batch}::int) as number)`;
    const [row] = await sql<{ xmax: number }[]>`
      select pg_snapshot_xmax(pg_current_snapshot())::text::float8 as xmax`;
    while ((await service.readMetric("known_transaction_id")) < (row?.xmax ?? 0))
      await new Promise((next) => setTimeout(next, 20));
  }
}

async function fillKeys(sql: postgres.Sql, protocol: ProtocolClient, { workspaceId, key }: Scene): Promise<void> {
  const secrets = Array.from({ length: manyKeys }, () => mintSecret());
  const ids = secrets.map(() => mintId("key"));
  await sql`
    insert into keys (key_id, workspace_id, hash, start, enabled, permissions, created_at, updated_at)
    select id, ${workspaceId}, decode(hash, 'hex'), 'lk_fill', true, '{}', now(), now()
    from unnest(${ids}::text[], ${secrets.map(({ hash }) => hash)}::text[]) as made (id, hash)`;
  const left = [...secrets];
  const verifyAll = async () => {
    for (let next = left.pop(); next !== undefined; next = left.pop()) {
      await protocol.call("verifyKey", key, { key: next.plaintext });
    }
  };
  await Promise.all(Array.from({ length: 16 }, verifyAll));
}
