import { createReadStream, readdirSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Redis } from "ioredis";
import { openSql } from "../../commands/open-sql.js";
import { isWellFormedSecret } from "../../src/keys/secret.js";
import type { Evidence } from "./artifacts.js";
import { operatorKey } from "./operator-key.js";

/** The output of a test run. */
export interface Remains {
  /** The folder with the tests' recorded output. */
  readonly evidence: string;
  /** Databases that were not dropped. The rows of dropped ones are in the folder. */
  readonly databaseUrls: readonly string[];
  readonly redisUrl: string | undefined;
}

/** How much was searched, and the secrets found. */
export interface Findings {
  readonly searched: ReadonlyMap<string, number>;
  readonly leaks: readonly string[];
}

/** Searches all output of a run for secrets. */
export async function searchRemains({ evidence, databaseUrls, redisUrl }: Remains): Promise<Findings> {
  const searched = new Map<string, number>();
  const leaks: string[] = [];
  const search = ({ kind, from, count, text }: Pick<Evidence, "from" | "count" | "text"> & { kind: string }) => {
    searched.set(kind, (searched.get(kind) ?? 0) + count);
    // Splits into lines only if there is a match: searching the whole text at once takes a tenth of the time.
    const lines = secretsIn(text).length > 0 ? text.split("\n") : [];
    for (const line of lines.filter((line) => secretsIn(line).length > 0)) leaks.push(`${kind} of ${from}: ${line}`);
  };

  for (const file of readdirSync(evidence)) {
    const pieces = createInterface({ input: createReadStream(join(evidence, file)) });
    for await (const piece of pieces) search(JSON.parse(piece));
  }
  for (const url of databaseUrls) {
    search({ kind: "rows", from: new URL(url).pathname.slice(1), ...(await suspiciousRows(url)) });
  }
  if (redisUrl !== undefined) {
    for (const text of await entriesOf(redisUrl)) search({ kind: "Redis entries", from: "the run", count: 1, text });
  }
  return { searched, leaks };
}

/**
 * The secrets in a text. They are recognized by their format and checksum, so that no list of them is needed and none
 * is missed. One in four thousand million texts of that format is a false positive.
 */
export function secretsIn(text: string): string[] {
  const found = [...text.matchAll(/_[A-Za-z0-9]{39,349}/g)].flatMap(({ index, 0: run }) => {
    // Most secrets have 39 characters after the prefix, whatever follows them. Longer ones are found if they end the run.
    const candidates = [run.slice(0, 40), run].flatMap((end) =>
      Array.from({ length: 16 }, (_, more) => text.slice(Math.max(0, index - more - 1), index) + end),
    );
    return candidates.filter(isWellFormedSecret).slice(0, 1);
  });
  return text.includes(operatorKey) ? [...found, operatorKey] : found;
}

/** The number of rows of a database, and the rows that may contain a secret. */
export async function suspiciousRows(databaseUrl: string): Promise<{ count: number; text: string }> {
  // Bytes are searched as the text that they may be.
  const sql = openSql(databaseUrl, { max: 1, onnotice: () => {}, connection: { bytea_output: "escape" } });
  try {
    const tables = await sql<{ name: string }[]>`
      select format('%I.%I', schemaname, tablename) as name from pg_tables
      where schemaname not in ('pg_catalog', 'information_schema')`;
    if (tables.length === 0) return { count: 0, text: "" };
    const counts = tables.map(
      ({ name }) => `
        select count(*)::int as count, string_agg(t::text, E'\\n') filter (
          where t::text ~ '_[A-Za-z0-9]{39}' or strpos(t::text, '${operatorKey}') > 0) as text
        from ${name} t`,
    );
    const found = await sql.unsafe<{ count: number; text: string | null }[]>(counts.join(" union all "));
    return {
      count: found.reduce((sum, { count }) => sum + count, 0),
      text: found.flatMap(({ text }) => text ?? []).join("\n"),
    };
  } finally {
    await sql.end();
  }
}

/** The names and values of all Redis entries. */
async function entriesOf(redisUrl: string): Promise<string[]> {
  const redis = new Redis(redisUrl);
  try {
    const names = await redis.keys("*");
    const values = names.length > 0 ? await redis.mget(names) : [];
    return names.map((name, index) => `${name} ${values[index] ?? ""}`);
  } finally {
    redis.disconnect();
  }
}
