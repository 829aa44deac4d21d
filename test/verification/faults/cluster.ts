import { readFileSync } from "node:fs";
import { chmod, chown, copyFile, mkdir, readdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Backend, Run } from "../../../src/embedded/backend.js";
import { openPostgres } from "../../../src/embedded/postgres.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { openSession } from "./session.js";

/** A primary and its standby. */
export interface Cluster {
  /** Leads to whichever server is the primary. */
  readonly url: string;
  /** Of PostgreSQL. */
  readonly version: string;
  /** From now on, the standby gets nothing more of what the primary commits. */
  holdReplication(): void;
  resumeReplication(): void;
  /** Cancels every commit that waits for the standby, as an administrator may. Resolves to how many there were. */
  cancelWaits(): Promise<number>;
  /** Cancels whatever the service has running. */
  cancelStatements(): Promise<void>;
  /** Terminates each session of the service with this probability. */
  terminateSessions(probability: number): Promise<void>;
  /** Stops the primary. `crash` has it recover when it is started again; nothing that was written to files is lost. */
  stop(how: "fast" | "crash"): Promise<void>;
  start(): Promise<void>;
  /** The primary is lost with all that it has not sent, and the standby takes its place. */
  failOver(): Promise<void>;
  /** Gives the primary another standby. */
  addStandby(): Promise<void>;
  close(): Promise<void>;
}

export interface ClusterOptions {
  /** Whether commits wait for the standby, as docs/operations/deployment.md requires. */
  readonly synchronous?: boolean;
  /** Beside those that every cluster of tests has, as in postgresql.conf. */
  readonly settings?: Readonly<Record<string, string>>;
  /** The folder of PostgreSQL's programs; left out, the embedded ones. */
  readonly programs?: string | undefined;
}

interface Server {
  readonly dataDir: string;
  readonly backend: Backend;
  run: Run;
}

/** What the standby still lacks when it connects is kept for it; and it connects again soon. */
const clusterSettings = { fsync: "off", wal_keep_size: "1GB", wal_retrieve_retry_interval: "100ms" };

/** How long a standby may take to follow, and to take over, on a busy machine. */
const patienceMs = 60_000;

/** Starts a primary and a standby below this folder. */
export async function openCluster(folder: string, options: ClusterOptions = {}): Promise<Cluster> {
  const { synchronous = true, programs } = options;
  const settings = { ...clusterSettings, ...options.settings };
  let count = 0;
  // Before version 16, PostgreSQL insists on a path to its data that its user may follow.
  await chmod(folder, 0o711);
  const nextDir = async () => {
    const dataDir = join(folder, `server-${++count}`);
    await mkdir(dataDir, { mode: 0o711 });
    return dataDir;
  };
  let primary = await startServer(await nextDir(), settings, programs);
  let sql = openAdmin(primary);
  let standby: { readonly server: Server; readonly link: BackendProxy } | undefined;
  const front = await openProxy(primary.backend.url);

  /** Makes a standby from a copy of the primary's files, which goes on meanwhile; as pg_basebackup does. */
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
      // Copies have the setting, too: when one takes over, its commits wait until it has a standby itself.
      await sql`alter system set synchronous_standby_names = '*'`;
      await sql`select pg_reload_conf()`;
    }
    await untilStandbyFollows();
  }

  async function untilStandbyFollows(): Promise<void> {
    const state = synchronous ? "sync" : "async";
    await until(`the standby follows: ${state}`, async () => {
      const found = await sql`select from pg_stat_replication where state = 'streaming' and sync_state = ${state}`;
      return found.count > 0;
    });
  }

  async function close(): Promise<void> {
    await sql.end({ timeout: 1 });
    await standby?.link.close();
    await front.close();
    await Promise.all((standby === undefined ? [primary] : [primary, standby.server]).map(lose));
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
    url: front.url,
    version,
    holdReplication: () => standby?.link.stall(),
    resumeReplication: () => standby?.link.resume(),
    async cancelWaits() {
      const found = await sql`select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'`;
      return found.count;
    },
    async cancelStatements() {
      await sql`
        select pg_cancel_backend(pid) from pg_stat_activity
        where application_name = ${nameOfService} and state = 'active'`;
    },
    async terminateSessions(probability) {
      await sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where application_name = ${nameOfService} and random() < ${probability}`;
    },
    async stop(how) {
      await sql.end({ timeout: 1 });
      if (how === "fast") await primary.run.stop();
      else await crash(primary);
    },
    async start() {
      primary.run = await primary.backend.start();
      sql = openAdmin(primary);
      await untilStandbyFollows();
    },
    async failOver() {
      if (standby === undefined) throw new Error("there is no standby");
      const { server, link } = standby;
      const lost = primary;
      // As if the machine had lost its power: from this moment on nobody hears of it, neither client nor standby.
      front.cut();
      await link.close();
      standby = undefined;
      await sql.end({ timeout: 1 });
      await lose(lost);
      primary = server;
      sql = openAdmin(primary);
      await sql`select pg_promote(true, ${patienceMs / 1_000})`;
      front.retarget(primary.backend.url);
      front.resume();
    },
    addStandby,
    close,
  };
}

/** What sessions of the service call themselves. */
const nameOfService = "latchkey";

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
  process.once("exit", () => signal(server, "SIGQUIT"));
  return server;
}

/** Where `openPostgres` keeps the files of a server. */
const filesIn = (dataDir: string) => join(dataDir, "postgres");

/** Stops it as `pg_ctl stop -m immediate` does. */
async function crash(server: Server): Promise<void> {
  signal(server, "SIGQUIT");
  await server.run.ended;
}

/** Nothing if it does not run. */
function signal({ dataDir }: Server, name: NodeJS.Signals): void {
  try {
    const [pid] = readFileSync(join(filesIn(dataDir), "postmaster.pid"), "utf8").split("\n");
    process.kill(Number(pid), name);
  } catch (error) {
    if (!["ENOENT", "ESRCH"].includes(`${(error as NodeJS.ErrnoException).code}`)) throw error;
  }
}

async function lose(server: Server): Promise<void> {
  await crash(server);
  server.backend.discard();
  await rm(server.dataDir, { recursive: true, force: true });
}

/** What is of the running server alone, and so is not copied; of folders, the files in them. */
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

/** Each file keeps its owner, as whom the server runs. One that goes away meanwhile is not needed. */
async function copyFolder(from: string, to: string, withFiles: boolean): Promise<void> {
  await mkdir(to, { mode: 0o700 });
  const entries = await readdir(from, { withFileTypes: true });
  const copies = entries.map(async (entry) => {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    const copied = withFiles && !notCopied.has(entry.name);
    if (entry.isDirectory()) await copyFolder(source, target, copied);
    else if (entry.isFile() && copied) await copyFile(source, target).then(() => giveTo(target, source), ignoreGone);
  });
  await Promise.all(copies);
  await giveTo(to, from);
}

async function giveTo(path: string, ownersOf: string): Promise<void> {
  const { uid, gid } = await stat(ownersOf);
  await chown(path, uid, gid);
}

function ignoreGone(error: NodeJS.ErrnoException): void {
  if (error.code !== "ENOENT") throw error;
}

async function writeFor(dataDir: string, name: string, text: string): Promise<void> {
  const path = join(filesIn(dataDir), name);
  await writeFile(path, text, { mode: 0o600 });
  await giveTo(path, filesIn(dataDir));
}

async function until(what: string, isSo: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + patienceMs;
  while (!(await isSo())) {
    if (performance.now() > deadline) throw new Error(`waited ${patienceMs} ms in vain: ${what}`);
    await sleep(20);
  }
}
