import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { migrateDatabase } from "../../src/app.js";
import { connectPostgres, type Sql } from "../../src/storage/postgres/connection.js";
import type { Population } from "./population.js";

/** Scopes let the keys of a population verify each other. Permissions are typical of keys in applications. */
const scopes = ["keys.*", "identities.*"];
const permissions = ["documents.read", "documents.write"];

/** Rows per COPY chunk. */
const batchSize = 5_000;

/**
 * Fills an empty database, with the service's own schema. New rows have no change stamp, so running services need not
 * poll for them. Start a service afterwards all the same, because filling uses the whole machine.
 *
 * @param progress is called with the number of rows copied so far
 */
export async function fill(
  databaseUrl: string,
  population: Population,
  progress: (table: string, rows: number) => void = () => {},
): Promise<void> {
  await migrateDatabase(databaseUrl);
  // Foreign keys are valid by construction. Checking each would take a third of the time.
  const parameters = { session_replication_role: "replica" };
  const sql = connectPostgres(databaseUrl, { connections: 1, statementMs: 0, parameters });
  const { workspaces, identities, keys } = population;
  const now = new Date().toISOString();
  const workspaceIds = Array.from({ length: workspaces }, (_, number) => population.workspaceId(number));
  const workspaceOf = (number: number) => workspaceIds[population.workspaceOf(number)] ?? "";
  try {
    await copy(sql, "workspaces (workspace_id, name, created_at)", workspaces, progress, (number) => [
      workspaceOf(number),
      `workspace ${number}`,
      now,
    ]);
    await copy(
      sql,
      "identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)",
      identities,
      progress,
      (number) => [
        population.identityId(number),
        workspaceOf(number),
        `user_${number}`,
        `{"plan":"pro","seats":${number % 100}}`,
        now,
        now,
      ],
    );
    await copy(
      sql,
      "keys (key_id, workspace_id, hash, start, name, enabled, scopes, permissions, identity_id, meta, created_at, updated_at)",
      keys,
      progress,
      (number) => {
        const { hash, start } = population.secret(number);
        const identity = population.identityOf(number);
        return [
          population.keyId(number),
          workspaceOf(number),
          `\\\\x${hash}`,
          start,
          `key ${number}`,
          "t",
          `{${scopes.join(",")}}`,
          `{${permissions.join(",")}}`,
          identity === undefined ? "\\N" : population.identityId(identity),
          `{"team":"team ${number % 50}"}`,
          now,
          now,
        ];
      },
    );
    await sql`vacuum (analyze) workspaces, identities, keys`;
    await sql`checkpoint`; // otherwise the checkpoint of the filled data would run during a measurement
  } finally {
    await sql.end();
  }
}

/** Copies rows in COPY's text format, separated by tabs. No field contains a tab or a line break. */
async function copy(
  sql: Sql,
  table: string,
  rows: number,
  progress: (table: string, rows: number) => void,
  row: (number: number) => readonly string[],
): Promise<void> {
  function* batches() {
    for (let from = 0; from < rows; from += batchSize) {
      let text = "";
      for (let number = from; number < Math.min(rows, from + batchSize); number++)
        text += `${row(number).join("\t")}\n`;
      yield text;
      progress(table.replace(/ .*/, ""), Math.min(rows, from + batchSize));
    }
  }
  const sink = await sql.unsafe(`copy ${table} from stdin`).writable();
  await pipeline(Readable.from(batches()), sink);
}
