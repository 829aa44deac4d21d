import { connectPostgres, type PoolSettings, poolSettings, type Sql } from "./connection.js";
import { createPool, type PoolUsage } from "./pool.js";
import { reliable, type StatementWatch } from "./statement.js";

/** Connections to the database that can be given up and made anew. */
export interface Connections {
  /** Runs on whichever connections are the present ones. */
  readonly sql: Sql;
  /** Gives them up: what comes next gets new ones, and what still waits on them has a moment left to be answered. */
  renew(): void;
  /** How many are in use, and how many could be. */
  use(): PoolUsage;
  close(): Promise<void>;
}

/**
 * Opens connections that outlive breaks and a network that swallows packets. postgres.js 3.4.9 alone would not: it uses
 * a silent connection until TCP gives it up, a quarter of an hour later; a statement that arrives between the error and
 * the end of a broken connection waits for ever or is taken for done; and what was left over from a broken connection
 * gets into the next one. So when one connection broke, none of them is used any more, and a result counts only if it
 * is whole.
 *
 * @param watch is told how statements end; without it, none is turned away, however long it has to wait
 */
export function openConnections(
  url: string,
  settings: PoolSettings = poolSettings,
  watch?: StatementWatch,
): Connections {
  let closing = false;
  let pools = open();
  const lanes = createPool(pools, settings.rules);

  function open(): Sql[] {
    const opened = Array.from({ length: settings.connections }, () =>
      connectPostgres(url, { ...settings, connections: 1 }, () => {
        if (opened === pools && !closing) renew();
      }),
    );
    return opened;
  }

  function renew(): void {
    const old = pools as (Sql & { close(): Promise<void> })[];
    pools = open();
    lanes.replace(pools);
    for (const pool of old) void pool.end({ timeout: secondsToFinish });
    // While it ended, postgres.js may have connected once more, for statements that were waiting their turn.
    setTimeout(() => {
      for (const pool of old) void pool.close();
    }, secondsToFinish * 4_000).unref();
  }

  const sql = new Proxy(lanes.first.sql, {
    apply: (_first, _this, written: Parameters<Sql>) => {
      const statement = lanes.first.sql(...written);
      if (!(statement instanceof Promise)) return statement;
      return reliable(statement, lanes, (sql) => sql(...written), watch);
    },
    get: (_first, name: keyof Sql) => lanes.first.sql[name],
  });
  return {
    sql,
    renew,
    use: lanes.usage,
    async close() {
      closing = true;
      await Promise.all(pools.map((pool) => pool.end({ timeout: 5 })));
    },
  };
}

/** How long statements may go on that wait on connections which were given up. */
const secondsToFinish = 0.5;

/** The database did not answer in time. */
export class Silence extends Error {
  override readonly name = "Silence";
  readonly code = "ETIMEDOUT";
}

/** Waits for an answer of the database, but no longer than this. */
export async function answerWithin<T>(limitMs: number, answer: PromiseLike<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      // In a process that was busy or paused, the answer may lie there unread: reading comes before judging.
      setImmediate(() => setImmediate(() => reject(new Silence(`no answer within ${limitMs} ms`))));
    }, limitMs);
  });
  try {
    return await Promise.race([answer, silence]);
  } finally {
    clearTimeout(timer);
  }
}
