/** What a statement does, as far as the share of the pool depends on it. */
export type StatementClass = "revocation" | "operator" | "lookup" | "ordinary";

/** Whom a statement is run for. */
export interface Origin {
  readonly class: StatementClass;
  /** Who is accountable, and has a share: a workspace, or one of the names below. */
  readonly account: string;
  /** Within an account, flows take turns. */
  readonly flow?: unknown;
}

/** How statements of a class use the pool. */
export interface ClassRules {
  /** How many connections no other class uses. */
  readonly kept: number;
  /** How many connections one account uses at a time. */
  readonly share: number;
  /** Whether statements of one account are sent behind each other on a connection, before the first has been answered. */
  readonly pipelined: boolean;
}

/** The rules of each class; of those that wait, the first class comes first. */
export type PoolRules = Readonly<Record<StatementClass, ClassRules>>;

/**
 * A statement cannot be interrupted in favour of another, and how long it will take is not known before. So what is to
 * be had at once must be kept free beforehand. Each class has a connection that no other class takes, and within a class
 * no account has more than its share: of ten connections, ordinary statements use seven at most, and those of one
 * workspace three.
 */
export const fairRules: PoolRules = {
  // Not pipelined: they come one by one, and none is to wait behind another that waits for a lock.
  revocation: { kept: 1, share: 2, pipelined: false },
  operator: { kept: 1, share: 3, pipelined: false },
  // One row each, by an index: none is slow by itself, so those of different workspaces may share a connection.
  lookup: { kept: 1, share: 3, pipelined: true },
  ordinary: { kept: 1, share: 3, pipelined: true },
};

const noLimit: ClassRules = { kept: 0, share: Number.POSITIVE_INFINITY, pipelined: true };

/** For connections that serve one purpose. */
export const unlimited: PoolRules = { revocation: noLimit, operator: noLimit, lookup: noLimit, ordinary: noLimit };

/** The service's own statements, which no call waits for. */
export const ownOrigin: Origin = { class: "ordinary", account: "the service" };
