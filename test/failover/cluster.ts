import { readFileSync } from "node:fs";
import { chown, copyFile, mkdir, readdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { openSql } from "../../commands/open-sql.js";
import type { Run } from "../../src/embedded/backend.js";
import { openPostgres } from "../../src/embedded/postgres.js";
import { type BackendProxy, openProxy } from "../proxy.js";

/** A primary and its standby, of PostgreSQL's embedded binaries. */
export interface Cluster {
  /** Leads to whichever server is the primary. */
  readonly url: string;
  /** From now on, the standby gets nothing more of what the primary commits. */
  holdReplication(): void;
  /** Cancels every commit that waits for the standby, as an administrator may. Resolves to how many there were. */
  cancelWaits(): Promise<number>;
  /** The primary is lost with all that it has not sent, and the standby takes its place. */
  failOver(): Promise<void>;
  /** Gives the primary another standby. */
  addStandby(): Promise<void>;
  close(): Promise<void>;
}

interface Server {
  readonly dataDir: string;
  readonly url: string;
  readonly run: Run;
  discard(): void;
}

/** What the standby still lacks when it connects is kept for it. */
const settings = { fsync: "off", wal_keep_size: "1GB" };

/** How long a standby may take to follow, and to take over, on a busy machine. */
const patienceMs = 60_000;

/**
 * Starts a primary and a standby below this folder.
 *
 * @param synchronous whether commits wait for the standby, as the README asks for
 */
export async function openCluster(folder: string, synchronous: boolean): Promise<Cluster> {
  let count = 0;
  const nextDir = () => join(folder, `server-${++count}`);
  let primary = await startServer(nextDir(), settings);
  let sql = openAdmin(primary);
  let standby: { readonly server: Server; readonly link: BackendProxy } | undefined;
  const front = await openProxy(primary.url);

  /** Makes a standby from a copy of the primary's files, which goes on meanwhile; as pg_basebackup does. */
  async function addStandby(): Promise<void> {
    const dataDir = nextDir();
    await sql`select pg_backup_start('standby', true)`;
    await copyServer(primary.dataDir, dataDir);
    const [row] = await sql<{ labelfile: string }[]>`select labelfile from pg_backup_stop(false)`;
    await writeFor(dataDir, "backup_label", row?.labelfile ?? "");
    await writeFor(dataDir, "standby.signal", "");
    const link = await openProxy(primary.url);
    const { hostname, port, username, password } = new URL(link.url);
    const conninfo = `host=${hostname} port=${port} user=${username} password=${password}`;
    standby = { server: await startServer(dataDir, { ...settings, primary_conninfo: conninfo }), link };
    if (synchronous) {
      // Copies have the setting, too: when one takes over, its commits wait until it has a standby itself.
      await sql`alter system set synchronous_standby_names = '*'`;
      await sql`select pg_reload_conf()`;
    }
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

  try {
    await addStandby();
  } catch (error) {
    await close();
    throw error;
  }

  return {
    url: front.url,
    holdReplication: () => standby?.link.stall(),
    async cancelWaits() {
      const found = await sql`select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'`;
      return found.count;
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
      front.retarget(primary.url);
      front.resume();
    },
    addStandby,
    close,
  };
}

function openAdmin({ url }: Server) {
  return openSql(url, { max: 1, onnotice: () => {} });
}

async function startServer(dataDir: string, settings: Readonly<Record<string, string>>): Promise<Server> {
  const backend = await openPostgres(dataDir, settings);
  return { dataDir, url: backend.url, run: await backend.start(), discard: () => backend.discard() };
}

/** Where `openPostgres` keeps the files of a server. */
const filesIn = (dataDir: string) => join(dataDir, "postgres");

/** Stops it as `pg_ctl stop -m immediate` does, and removes its files. */
async function lose({ dataDir, run, discard }: Server): Promise<void> {
  const [pid] = readFileSync(join(filesIn(dataDir), "postmaster.pid"), "utf8").split("\n");
  process.kill(Number(pid), "SIGQUIT");
  await run.ended;
  discard();
  await rm(dataDir, { recursive: true, force: true });
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
  await mkdir(to, { mode: 0o700 });
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
