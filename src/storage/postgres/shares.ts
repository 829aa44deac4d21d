/** What a statement does, as far as its share of the pool depends on it. */
export type StatementClass = "revocation" | "operator" | "lookup" | "ordinary";

/** On whose behalf a statement runs. */
export interface Origin {
  readonly class: StatementClass;
  /** The account whose share is used: a workspace, or one of the names in database.ts. */
  readonly account: string;
  /** Flows of one account take turns. */
  readonly flow?: unknown;
}

/** How statements of a class use the pool. */
export interface ClassRules {
  /** How many connections are reserved for the class. */
  readonly reserved: number;
  /** How many connections one account uses at a time. */
  readonly share: number;
  /** Whether statements of one account are sent on a connection before the first has been answered. */
  readonly pipelined: boolean;
}

/** The rules of each class. Of waiting statements, those of the first class are served first. */
export type PoolRules = Readonly<Record<StatementClass, ClassRules>>;

/**
 * A statement cannot be interrupted in favour of another, and its duration is not known in advance. So connections that must
 * be available at once are reserved. Each class has one reserved connection, and within a class no account has more than
 * its share: of ten connections, ordinary statements use at most seven, and those of one workspace three.
 */
export const fairRules: PoolRules = {
  // Not pipelined: they are rare, and none may wait behind another that waits for a lock.
  revocation: { reserved: 1, share: 2, pipelined: false },
  operator: { reserved: 1, share: 3, pipelined: false },
  // One row each, by an index: none is slow by itself, so those of different workspaces may share a connection.
  lookup: { reserved: 1, share: 3, pipelined: true },
  ordinary: { reserved: 1, share: 3, pipelined: true },
};

const noLimit: ClassRules = { reserved: 0, share: Number.POSITIVE_INFINITY, pipelined: true };

/** For connections that serve one purpose. */
export const unlimited: PoolRules = { revocation: noLimit, operator: noLimit, lookup: noLimit, ordinary: noLimit };

/** Statements of the service itself, which no call waits for. */
export const ownOrigin: Origin = { class: "ordinary", account: "the service" };
