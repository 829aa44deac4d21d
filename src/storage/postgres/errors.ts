import { errorCodeOf } from "./connection.js";

/** What is the matter with the database, as far as that is not the statement's own fault. */
export interface DatabaseError {
  /** For callers: the beginning of a sentence. */
  readonly sentence: string;
  /** Whether it lasts until somebody does something about it, while PostgreSQL itself still answers. */
  readonly persistent: boolean;
}

/**
 * PostgreSQL has warned while a statement ran, and then reported success. It does so when it stops waiting for a
 * synchronous standby: the change is committed on the primary, and may be lost with it. The code is the SQL standard's
 * for "statement completion unknown".
 */
export class OutcomeUnknown extends Error {
  override readonly name = "OutcomeUnknown";
  readonly code = "40003";

  constructor(
    warning: string,
    readonly query: string,
  ) {
    super(warning);
  }
}

/** What is the matter, if it is the database and not the statement: PostgreSQL's own codes, or the system's. */
export function classifyError(error: unknown): DatabaseError | undefined {
  const code = errorCodeOf(error);
  if (code === undefined) return undefined;
  return troubles.find(({ codes }) => codes.test(code));
}

/** The first that matches speaks. 57014 and 40P01 come here only when repeating the statement did not help. */
const troubles: readonly (DatabaseError & { readonly codes: RegExp })[] = [
  { codes: /^53100$/, sentence: "The service's database has no disk space left", persistent: true },
  { codes: /^53200$/, sentence: "The service's database has no memory left", persistent: true },
  { codes: /^53300$/, sentence: "The service's database has no connection left", persistent: true },
  { codes: /^53/, sentence: "The service's database is short of resources", persistent: true },
  { codes: /^58/, sentence: "The service's database cannot use its files", persistent: true },
  { codes: /^(28|3D|42501)/, sentence: "The service's database denies it access", persistent: true },
  // A standby, or a primary that was demoted.
  { codes: /^25006$/, sentence: "The service's database can only be read just now", persistent: true },
  {
    codes: /^40003$/,
    sentence: "The service's database has not confirmed the change, so whether it took effect is not known",
    persistent: true,
  },
  // Cancelled by a time limit, a lock that was not to be had, deadlocks.
  { codes: /^(57014|55P03|40)/, sentence: "The service's database takes too long just now", persistent: false },
  // Starting up, shutting down, crashed; broken connections; what postgres.js and the operating system say of them. Of a
  // socket in the file system: ENOENT while its server is away, EAGAIN while that accepts nobody.
  {
    codes: /^(57P|08|CONNECT|ECONN|EHOST|ENET|ENOTFOUND$|ENOENT$|EAGAIN$|EAI_AGAIN$|EPIPE$|ETIMEDOUT$)/,
    sentence: "The service cannot reach its database just now",
    persistent: false,
  },
];
