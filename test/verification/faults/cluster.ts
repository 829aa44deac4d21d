import { readFileSync } from "node:fs";
import { chmod, chown, copyFile, mkdir, readdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Backend, Run } from "../../../src/embedded/backend.js";
import { openPostgres } from "../../../src/embedded/postgres.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { openSession } from "./session.js";

/** A PostgreSQL primary and its standby. */
export interface Cluster {
  /** Always leads to the current primary. */
  readonly url: string;
  /** Leads to the standby; undefined if there is none. */
  readonly standbyUrl: string | undefined;
  /** The version of PostgreSQL. */
  readonly version: string;
  /** Stops replication: the standby receives no further commits. */
  pauseReplication(): void;
  resumeReplication(): void;
  /** Cancels every commit that waits for the standby, as an administrator could. Resolves to their number. */
  cancelWaits(): Promise<number>;
  /** Cancels all running statements of the service. */
  cancelStatements(): Promise<void>;
  /** Terminates each session of the service with this probability. */
  terminateSessions(probability: number): Promise<void>;
  /** Stops the primary. After `crash` it recovers at its next start; nothing that was written to files is lost. */
  stop(how: "fast" | "crash"): Promise<void>;
  start(): Promise<void>;
  /** Destroys the primary with everything that it has not replicated, and promotes the standby. */
  failOver(): Promise<void>;
  /** Adds a new standby to the primary. */
  addStandby(): Promise<void>;
  close(): Promise<void>;
}

export interface ClusterOptions {
  /** Whether commits wait for the standby, as docs/operations/deployment.md requires. */
  readonly synchronous?: boolean;
  /** Settings of postgresql.conf, in addition to those of every test cluster. */
  readonly settings?: Readonly<Record<string, string>>;
  /** The folder of the PostgreSQL binaries. Omitted: the embedded ones. */
  readonly programs?: string | undefined;
}

interface Server {
  readonly dataDir: string;
  readonly backend: Backend;
  run: Run;
}

/** Keeps WAL that a new standby still needs, and makes the standby reconnect quickly. */
const clusterSettings = { fsync: "off", wal_keep_size: "1GB", wal_retrieve_retry_interval: "100ms" };

/** Long enough for a standby to follow, and to be promoted, on a busy machine. */
const standbyTimeoutMs = 60_000;

/** Starts a primary and a standby below this folder. */
export async function openCluster(folder: string, options: ClusterOptions = {}): Promise<Cluster> {
  const { synchronous = true, programs } = options;
  const settings = { ...clusterSettings, ...options.settings };
  let count = 0;
  // Before version 16, PostgreSQL requires that its user can traverse the whole path to its data.
  await chmod(folder, 0o711);
  const nextDir = async () => {
    const dataDir = join(folder, `server-${++count}`);
    await mkdir(dataDir, { mode: 0o711 });
    return dataDir;
  };
  let primary = await startServer(await nextDir(), settings, programs);
  let sql = openAdmin(primary);
  let standby: { readonly server: Server; readonly link: BackendProxy } | undefined;
  const frontProxy = await openProxy(primary.backend.url);

  /** Creates a standby from a copy of the files of the running primary, as pg_basebackup does. */
  async function addStandby(): Promise<void> {
    const dataDir = await nextDir();
    await sql`select pg_backup_start('standby', true)`;
    await copyServer(primary.dataDir, dataDir);
    const [row] = await sql<{ labelfile: string }[]>`select labelfile from pg_backup_stop(false)`;
    await writeFor(dataDir, "backup_label", row?.labelfile ?? "");
    await writeFor(dataDir, "standby.signal", "");
    const link = await openProxy(primary.backend.url);
    const { hostname, port, username, password } = new URL(link.url);
    const conninfo = `host=${hostname} port=${port} user=${username} password=${password}`;
    standby = { server: await startServer(dataDir, { ...settings, primary_conninfo: conninfo }, programs), link };
    if (synchronous) {
      // Copies have the setting, too. After a promotion, commits wait until the new primary has a standby.
      await sql`alter system set synchronous_standby_names = '*'`;
      await sql`select pg_reload_conf()`;
    }
    await awaitStandby();
  }

  async function awaitStandby(): Promise<void> {
    const state = synchronous ? "sync" : "async";
    await until(`a standby with sync_state ${state}`, async () => {
      const found = await sql`select from pg_stat_replication where state = 'streaming' and sync_state = ${state}`;
      return found.count > 0;
    });
  }

  async function close(): Promise<void> {
    await sql.end({ timeout: 1 });
    await standby?.link.close();
    await frontProxy.close();
    await Promise.all((standby === undefined ? [primary] : [primary, standby.server]).map(destroy));
  }

  let version = "";
  try {
    const [row] = await sql<{ version: string }[]>`select current_setting('server_version') as version`;
    version = row?.version ?? "";
    await addStandby();
  } catch (error) {
    await close();
    throw error;
  }

  return {
    url: frontProxy.url,
    get standbyUrl() {
      return standby?.server.backend.url;
    },
    version,
    pauseReplication: () => standby?.link.stall(),
    resumeReplication: () => standby?.link.resume(),
    async cancelWaits() {
      const found = await sql`select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'`;
      return found.count;
    },
    async cancelStatements() {
      await sql`
        select pg_cancel_backend(pid) from pg_stat_activity
        where application_name = ${serviceName} and state = 'active'`;
    },
    async terminateSessions(probability) {
      await sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where application_name = ${serviceName} and random() < ${probability}`;
    },
    async stop(how) {
      await sql.end({ timeout: 1 });
      if (how === "fast") await primary.run.stop();
      else await crash(primary);
    },
    async start() {
      primary.run = await primary.backend.start();
      sql = openAdmin(primary);
      await awaitStandby();
    },
    async failOver() {
      if (standby === undefined) throw new Error("there is no standby");
      const { server, link } = standby;
      const lost = primary;
      // Like a power failure: from this moment on, neither clients nor the standby receive anything from the primary.
      frontProxy.cut();
      await link.close();
      standby = undefined;
      await sql.end({ timeout: 1 });
      await destroy(lost);
      primary = server;
      sql = openAdmin(primary);
      await sql`select pg_promote(true, ${standbyTimeoutMs / 1_000})`;
      frontProxy.retarget(primary.backend.url);
      frontProxy.resume();
    },
    addStandby,
    close,
  };
}

/** The application_name of the service's sessions. */
const serviceName = "latchkey";

function openAdmin({ backend }: Server) {
  return openSession(backend.url);
}

async function startServer(
  dataDir: string,
  settings: Readonly<Record<string, string>>,
  programs: string | undefined,
): Promise<Server> {
  const backend = await openPostgres(dataDir, settings, undefined, programs);
  const server = { dataDir, backend, run: await backend.start() };
  servers.add(server);
  return server;
}

/** The servers of all rounds. They end with this process. */
const servers = new Set<Server>();

process.once("exit", () => {
  for (const server of servers) signal(server, "SIGQUIT");
});

/** Where `openPostgres` stores the files of a server. */
const filesIn = (dataDir: string) => join(dataDir, "postgres");

/** Stops it as `pg_ctl stop -m immediate` does. */
async function crash(server: Server): Promise<void> {
  signal(server, "SIGQUIT");
  await server.run.ended;
}

/** Does nothing if the server does not run. */
function signal({ dataDir }: Server, name: NodeJS.Signals): void {
  try {
    const [pid] = readFileSync(join(filesIn(dataDir), "postmaster.pid"), "utf8").split("\n");
    process.kill(Number(pid), name);
  } catch (error) {
    if (!["ENOENT", "ESRCH"].includes(`${(error as NodeJS.ErrnoException).code}`)) throw error;
  }
}

async function destroy(server: Server): Promise<void> {
  await crash(server);
  servers.delete(server);
  server.backend.discard();
  await rm(server.dataDir, { recursive: true, force: true });
}

/** Belongs to the running server only. Such files are not copied; such folders are copied empty. */
const notCopied = new Set([
  "postmaster.pid",
  "postmaster.opts",
  ".s.PGSQL.5432.lock",
  "pg_wal",
  "pg_replslot",
  "pg_dynshmem",
  "pg_notify",
  "pg_serial",
  "pg_snapshots",
  "pg_stat_tmp",
  "pg_subtrans",
]);

async function copyServer(from: string, to: string): Promise<void> {
  await copyFolder(filesIn(from), filesIn(to), true);
}

/**
 * Keeps the owner of each file, because the server runs as that user. A file that disappears meanwhile is not needed.
 */
async function copyFolder(from: string, to: string, withFiles: boolean): Promise<void> {
  await mkdir(to, { mode: 0o700 });
  const entries = await readdir(from, { withFileTypes: true });
  const copies = entries.map(async (entry) => {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    const copied = withFiles && !notCopied.has(entry.name);
    if (entry.isDirectory()) await copyFolder(source, target, copied);
    else if (entry.isFile() && copied)
      await copyFile(source, target).then(() => copyOwner(target, source), ignoreMissing);
  });
  await Promise.all(copies);
  await copyOwner(to, from);
}

async function copyOwner(path: string, from: string): Promise<void> {
  const { uid, gid } = await stat(from);
  await chown(path, uid, gid);
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== "ENOENT") throw error;
}

async function writeFor(dataDir: string, name: string, text: string): Promise<void> {
  const path = join(filesIn(dataDir), name);
  await writeFile(path, text, { mode: 0o600 });
  await copyOwner(path, filesIn(dataDir));
}

async function until(what: string, condition: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + standbyTimeoutMs;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`timed out after ${standbyTimeoutMs} ms: ${what}`);
    await sleep(20);
  }
}
