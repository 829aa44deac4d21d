import { errorCodeOf } from "./connection.js";

/** A failure of the database, not of the statement. */
export interface DatabaseError {
  /** The beginning of the error detail for callers. */
  readonly detail: string;
  /** Whether it persists until an operator acts, while PostgreSQL still answers. */
  readonly persistent: boolean;
}

/**
 * PostgreSQL sent a warning while a statement ran, and then reported success. It does so when it stops waiting for a
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

/** Classifies an error by its code. Undefined if the database itself did not fail. */
export function classifyError(error: unknown): DatabaseError | undefined {
  const code = errorCodeOf(error);
  if (code === undefined) return undefined;
  return classes.find(({ codes }) => codes.test(code));
}

/** Whether the role of a statement lacks a right. */
export function isAccessDenied(error: unknown): boolean {
  return errorCodeOf(error) === "42501";
}

/** Whether a statement reached a standby, or another server that accepts no changes. */
export function isReadOnly(error: unknown): boolean {
  return errorCodeOf(error) === "25006";
}

/** The first match wins. 57014 and 40P01 get here only after retries. */
const classes: readonly (DatabaseError & { readonly codes: RegExp })[] = [
  { codes: /^53100$/, detail: "The service's database is out of disk space", persistent: true },
  { codes: /^53200$/, detail: "The service's database is out of memory", persistent: true },
  { codes: /^53300$/, detail: "The service's database is out of connections", persistent: true },
  { codes: /^53/, detail: "The service's database is short of resources", persistent: true },
  { codes: /^58/, detail: "The service's database cannot use its files", persistent: true },
  { codes: /^(28|3D|42501)/, detail: "The service's database denies it access", persistent: true },
  // A certificate that has expired or is not trusted, or a server without a common version of TLS. The codes are those of
  // OpenSSL's verification, and of Node.
  {
    codes:
      /^(CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|INVALID_(CA|PURPOSE)$|PATH_LENGTH_|HOSTNAME_MISMATCH$|ERR_(TLS|SSL)_)/,
    detail: "The service cannot establish a TLS connection to its database",
    persistent: true,
  },
  // A standby, or a primary that was demoted.
  { codes: /^25006$/, detail: "The service's database is read-only", persistent: true },
  {
    codes: /^40003$/,
    detail: "The service's database has not confirmed the change; whether it took effect is unknown",
    persistent: true,
  },
  // Statement timeouts, lock timeouts, deadlocks.
  { codes: /^(57014|55P03|40)/, detail: "The service's database is too slow at the moment", persistent: false },
  // Starting up, shutting down, crashed; broken connections, by the codes of postgres.js and the operating system. For a
  // Unix socket: ENOENT while the server is down, EAGAIN while its backlog is full.
  {
    codes: /^(57P|08|CONNECT|ECONN|EHOST|ENET|ENOTFOUND$|ENOENT$|EAGAIN$|EAI_AGAIN$|EPIPE$|ETIMEDOUT$)/,
    detail: "The service cannot reach its database",
    persistent: false,
  },
];
