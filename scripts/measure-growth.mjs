// Measures how much PostgreSQL grows by each kind of change: `node scripts/measure-growth.mjs`, after `npm run build`. It starts
// an embedded PostgreSQL and a service of its own, makes some thousand changes of each kind over HTTP, and prints what a
// million of them would take. docs/operations/deployment.md has the figures.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import { openApp } from "../dist/src/app.js";
import { readConfig } from "../dist/src/config.js";
import { openPostgres } from "../dist/src/embedded/postgres.js";
import { createLog } from "../dist/src/observe/log.js";
import { socketOf } from "../dist/src/storage/postgres/connection.js";

const count = Number(process.argv[2] ?? 4_000);
const concurrency = 16;
const million = 1_000_000;

const folder = mkdtempSync(join(tmpdir(), "latchkey-growth-"));
const backend = await openPostgres(folder, { fsync: "off", autovacuum: "off" });
const running = await backend.start();
const operatorKey = "an-operator-key-for-measuring";
const config = readConfig({ HTTP_PORT: "0", GRPC_PORT: "0", OPERATOR_KEY: operatorKey });
const app = await openApp({ ...config, databaseUrl: backend.url, log: createLog("error") });
const sql = postgres(backend.url, { ...socketOf(backend.url), max: 1, onnotice: () => {} });
// A short lease: changes return sooner, and take as many bytes.
await sql`update cluster_state set lease_ms = 100, wait_ms = 100`;

async function call(operation, key, body, headers = {}) {
  for (;;) {
    const response = await fetch(`${app.httpUrl}/v2/${operation}`, {
      method: "POST",
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
    const { data, error } = await response.json();
    if (response.status === 200) return data;
    // After a response that was lost, a deletion that is repeated finds nothing.
    if (response.status === 404 && operation === "keys.deleteKey") return undefined;
    if (response.status !== 503) throw new Error(`${operation}: ${error.detail}`);
  }
}

/** The bytes of audit events, of idempotency records, and of everything else, with their indexes. */
async function sizes() {
  const [row] = await sql`
    select sum(pg_total_relation_size(oid)) filter (where relname = 'audit_events')::float8 as audit,
      sum(pg_total_relation_size(oid)) filter (where relname = 'idempotency_records')::float8 as idempotency,
      sum(pg_total_relation_size(oid)) filter (where relname not in ('audit_events', 'idempotency_records'))::float8 as rows
    from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace`;
  return row;
}

async function measure(name, change) {
  const before = await sizes();
  let next = 0;
  const work = async () => {
    while (next < count) await change(next++);
  };
  await Promise.all(Array.from({ length: concurrency }, work));
  const after = await sizes();
  const megabytes = (kind) => Math.round(((after[kind] - before[kind]) / count) * (million / 1024 ** 2));
  process.stdout.write(
    `${name}: audit ${megabytes("audit")} MiB, rows ${megabytes("rows")} MiB, idempotency ${megabytes("idempotency")} MiB\n`,
  );
}

try {
  const { key } = await call("workspaces.createWorkspace", operatorKey, { name: "growth" });
  const keyIds = [];
  const meta = { plan: "pro", region: "eu-central-1", seats: 25 };
  process.stdout.write(`for a million changes each, measured with ${count}:\n`);
  await measure("createKey with a name, meta and a permission", async (index) => {
    const settings = { name: `customer ${index}`, meta, permissions: ["documents.read"] };
    keyIds[index] = (await call("keys.createKey", key, settings)).keyId;
  });
  await measure("the same with an Idempotency-Key", async (index) => {
    const settings = { name: `customer ${index}`, meta, permissions: ["documents.read"] };
    await call("keys.createKey", key, settings, { "Idempotency-Key": `growth ${index}` });
  });
  await measure("updateKey of the name", (index) =>
    call("keys.updateKey", key, { keyId: keyIds[index], name: `other ${index}` }),
  );
  await measure("createIdentity with meta", (index) =>
    call("identities.createIdentity", key, { externalId: `user_${index}`, meta }),
  );
  await measure("deleteKey", (index) => call("keys.deleteKey", key, { keyId: keyIds[index] }));
} finally {
  await sql.end();
  await app.close();
  await running.stop();
  backend.discard();
  rmSync(folder, { recursive: true, force: true });
}
