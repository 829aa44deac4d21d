import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { migrateDatabase } from "../../src/app.js";
import { connectPostgres, type Sql } from "../../src/storage/postgres/connection.js";
import type { Population } from "./population.js";

/** What the keys of a population may do: ask about each other, and a few things as keys in the field do. */
const scopes = ["keys.*", "identities.*"];
const permissions = ["documents.read", "documents.write"];

/** How many rows are sent at a time. */
const batch = 5_000;

/**
 * Fills an empty database, with the service's own schema. New rows have no stamp, and so nobody who runs on this database
 * has to learn of them; but a service should start afterwards all the same, since filling takes the machine.
 *
 * @param progress is told of the rows that are there so far
 */
export async function fill(
  databaseUrl: string,
  population: Population,
  progress: (table: string, rows: number) => void = () => {},
): Promise<void> {
  await migrateDatabase(databaseUrl);
  // References are right by construction: looking each of them up would take a third of the time.
  const more = { session_replication_role: "replica" };
  const sql = connectPostgres(databaseUrl, { connections: 1, statementMs: 0, more });
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
    await sql`checkpoint`; // or it would come, with all that was filled, while something is measured
  } finally {
    await sql.end();
  }
}

/** One after the other, in the text form of COPY: fields between tabs, none of which has a tab or a line end in it. */
async function copy(
  sql: Sql,
  table: string,
  rows: number,
  progress: (table: string, rows: number) => void,
  row: (number: number) => readonly string[],
): Promise<void> {
  function* batches() {
    for (let from = 0; from < rows; from += batch) {
      let text = "";
      for (let number = from; number < Math.min(rows, from + batch); number++) text += `${row(number).join("\t")}\n`;
      yield text;
      progress(table.replace(/ .*/, ""), Math.min(rows, from + batch));
    }
  }
  const sink = await sql.unsafe(`copy ${table} from stdin`).writable();
  await pipeline(Readable.from(batches()), sink);
}
