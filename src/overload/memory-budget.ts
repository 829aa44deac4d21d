import type { EventEmitter } from "node:events";
import type { ShedCounter } from "./shed-counter.js";

/**
 * The memory that clients can occupy in this process, over all connections of both ports: request bytes, unread
 * responses, waiting requests, open streams. All memory that is kept for a client must be reserved here.
 */
export interface MemoryBudget {
  /** How many bytes are reserved. 0 when no connection is open. */
  readonly reserved: number;
  /** The account of a connection. When the socket closes, the account ends and releases all its reservations. */
  accountOf(connection: Connection): MemoryAccount;
}

/** The socket or the HTTP/2 session of a connection. */
export interface Connection extends EventEmitter {
  readonly destroyed?: boolean;
}

/** The reservations of one connection. */
export interface MemoryAccount {
  readonly reserved: number;
  /**
   * Reserves memory. Undefined if the connection is closed, or if the reservation would exceed the limit of the
   * connection, of the tenant or of the process. A refused reservation is counted as shed load.
   *
   * @param tenant the tenant, once it is authenticated. Without it, the memory counts for all unauthenticated clients,
   *   which together have the limit of one tenant
   */
  reserve(bytes: number, tenant?: string): Reservation | undefined;
}

export interface Reservation {
  readonly bytes: number;
  /** Reserves more. False, and no change, if that would exceed a limit. */
  grow(bytes: number): boolean;
  /** Releases a part. */
  shrink(bytes: number): void;
  /** Moves the reservation to the tenant after authentication. False, and no change, if its limit would be exceeded. */
  assign(tenant: string): boolean;
  /** Idempotent. */
  release(): void;
}

export interface MemoryLimits {
  /** The limit of the process. */
  readonly totalBytes: number;
  readonly connectionBytes: number;
  /** The limit of all connections of a workspace. Less than the total, so that no tenant can exhaust the budget. */
  readonly tenantBytes: number;
  /**
   * Accounts up to this size may exceed the limits of the process and of the tenant, up to twice these limits. A few
   * large requests must not block all small ones.
   */
  readonly smallBytes: number;
}

/** The tenant of calls that are not authenticated yet, or that belong to no workspace. */
const noTenant = "";

export function createMemoryBudget(limits: MemoryLimits, shedding: ShedCounter): MemoryBudget {
  const { totalBytes, connectionBytes, tenantBytes, smallBytes } = limits;
  const accounts = new WeakMap<Connection, MemoryAccount>();
  const reservedByTenant = new Map<string, number>();
  let reserved = 0;

  const tenantReserved = (tenant: string) => reservedByTenant.get(tenant) ?? 0;

  function addToTenant(bytes: number, tenant: string): void {
    const sum = tenantReserved(tenant) + bytes;
    if (sum === 0) reservedByTenant.delete(tenant);
    else reservedByTenant.set(tenant, sum);
  }

  function countIfShed(withinLimits: boolean): boolean {
    if (!withinLimits) shedding.count("memory");
    return withinLimits;
  }

  /** How many times the limits of the process and of the tenant apply to an account of this size. */
  const factorOf = (accountBytes: number) => (accountBytes <= smallBytes ? 2 : 1);

  /** Whether the limit of the tenant allows these further bytes. The size of their account includes them. */
  const fitsTenant = (bytes: number, accountBytes: number, tenant: string) =>
    tenantReserved(tenant) + bytes <= factorOf(accountBytes) * tenantBytes;

  function fits(bytes: number, accountReserved: number, tenant: string): boolean {
    const accountBytes = accountReserved + bytes;
    return countIfShed(
      reserved + bytes <= factorOf(accountBytes) * totalBytes &&
        accountBytes <= connectionBytes &&
        fitsTenant(bytes, accountBytes, tenant),
    );
  }

  function openAccount(connection: Connection): MemoryAccount {
    const open = new Set<Reservation>();
    let accountReserved = 0;
    let closed = false;

    function add(bytes: number, tenant: string): void {
      reserved += bytes;
      accountReserved += bytes;
      addToTenant(bytes, tenant);
    }

    connection.once("close", () => {
      closed = true;
      for (const reservation of open) reservation.release();
    });

    return {
      get reserved() {
        return accountReserved;
      },
      reserve(bytes, initialTenant = noTenant) {
        // A call can outlive its connection. No "close" event would ever release its later reservations.
        if (closed || connection.destroyed === true || !fits(bytes, accountReserved, initialTenant)) return undefined;
        let size = bytes;
        let tenant = initialTenant;
        add(bytes, tenant);
        const reservation: Reservation = {
          get bytes() {
            return size;
          },
          grow(more) {
            if (!open.has(reservation) || !fits(more, accountReserved, tenant)) return false;
            size += more;
            add(more, tenant);
            return true;
          },
          shrink(less) {
            if (!open.has(reservation)) return;
            size -= less;
            add(-less, tenant);
          },
          assign(newTenant) {
            if (newTenant === tenant) return true;
            if (!open.has(reservation) || !countIfShed(fitsTenant(size, accountReserved, newTenant))) return false;
            addToTenant(-size, tenant);
            addToTenant(size, newTenant);
            tenant = newTenant;
            return true;
          },
          release() {
            if (!open.delete(reservation)) return;
            add(-size, tenant);
            size = 0;
          },
        };
        open.add(reservation);
        return reservation;
      },
    };
  }

  return {
    get reserved() {
      return reserved;
    },
    accountOf(connection) {
      const existing = accounts.get(connection);
      if (existing !== undefined) return existing;
      const account = openAccount(connection);
      accounts.set(connection, account);
      return account;
    },
  };
}
