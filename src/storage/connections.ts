import type postgres from "postgres";
import { connectPostgres, type PoolSettings, poolSettings, type Sql } from "./postgres.js";

/** Connections to the database that can be given up and made anew. */
export interface Connections {
  /** Runs on whichever connections are the present ones. */
  readonly sql: Sql;
  /** Gives them up: what comes next gets new ones, and what still waits on them has a moment left to be answered. */
  renew(): void;
  /** How many are in use, and how many could be. */
  use(): PoolUse;
  close(): Promise<void>;
}

/** A statement has a connection to itself while there is a free one; then it waits for another on the same. */
export interface PoolUse {
  readonly busy: number;
  readonly free: number;
  readonly waiting: number;
}

/**
 * Opens connections that outlive breaks and a network that swallows packets. postgres.js 3.4.9 alone would not: it uses
 * a silent connection until TCP gives it up, a quarter of an hour later; a statement that arrives between the error and
 * the end of a broken connection waits for ever or is taken for done; and what was left over from a broken connection
 * gets into the next one of that place in the pool. So a pool in which a connection broke is used no more, and a result
 * counts only if it is whole.
 */
export function openConnections(url: string, settings: PoolSettings = poolSettings): Connections {
  let closing = false;
  // postgres.js tells nobody how its pool is used. Counted anew with each pool: a broken one may keep statements for ever.
  let unanswered: Unanswered;
  let pool = open();

  function open(): Sql {
    unanswered = { statements: 0 };
    const opened: Sql = connectPostgres(url, settings, () => {
      if (opened === pool && !closing) renew();
    });
    return opened;
  }

  function renew(): void {
    const old = pool as Sql & { close(): Promise<void> };
    pool = open();
    void old.end({ timeout: secondsToFinish });
    // While it ended, postgres.js may have connected once more, for statements that were waiting their turn.
    setTimeout(() => void old.close(), secondsToFinish * 4_000).unref();
  }

  const sql = new Proxy(pool, {
    apply: (_first, _this, statement: Parameters<typeof pool>) => onlyWhole(pool(...statement), unanswered),
    get: (_first, name: keyof Sql) => pool[name],
  });
  return {
    sql,
    renew,
    use() {
      const busy = Math.min(unanswered.statements, settings.connections);
      return { busy, free: settings.connections - busy, waiting: unanswered.statements - busy };
    },
    async close() {
      closing = true;
      await pool.end({ timeout: 5 });
    },
  };
}

/** How long statements may go on that wait on connections which were given up. */
const secondsToFinish = 0.5;

/** How many statements have been sent to a pool and not been answered. */
interface Unanswered {
  statements: number;
}

/**
 * Makes a statement fail whose result is not whole. It may have taken effect, as with any connection that breaks. Counts
 * it from when somebody waits for it, which is when it is sent: some are only parts of others.
 */
function onlyWhole<T>(statement: T, unanswered: Unanswered): T {
  if (statement instanceof Promise) {
    const run = statement.then.bind(statement);
    // biome-ignore lint/suspicious/noThenProperty: a statement is sent when somebody waits for it
    statement.then = (onResult, onError) => {
      unanswered.statements += 1;
      return run(
        (result) => {
          unanswered.statements -= 1;
          return whole(result, statement);
        },
        (error) => {
          unanswered.statements -= 1;
          throw error;
        },
      ).then(onResult, onError);
    };
  }
  return statement;
}

/** A result is whole if the statement ended, the result is its own, and every row is there. */
function whole<R extends postgres.RowList<never[]>>(result: R, asked: object): R {
  const own = "statement" in asked && asked.statement === result.statement;
  const complete = result.command !== null && (result.length === 0 || result.length === result.count);
  if (!own || !complete) throw new ConnectionBroken("the connection broke before the result was whole");
  return result;
}

/** Nothing can be said of what was asked. */
class ConnectionBroken extends Error {
  override readonly name = "ConnectionBroken";
  readonly code = "CONNECTION_CLOSED";
}

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
