import type { EventEmitter } from "node:events";
import type { ShedCounter } from "./shed-counter.js";

/**
 * The memory that clients can make this process hold, over all connections of both ports: request bytes, responses that
 * are not read yet, requests that wait, streams that stay. Whatever is not reserved here is not held for a client.
 */
export interface MemoryBudget {
  /** How many bytes are reserved. 0 once no connection is open. */
  readonly reserved: number;
  /** The account of a connection. It ends when its socket closes, and with it everything that is still reserved there. */
  accountOf(connection: Connection): MemoryAccount;
}

/** The socket, or the session, of a connection. */
export interface Connection extends EventEmitter {
  readonly destroyed?: boolean;
}

/** What one connection holds. */
export interface MemoryAccount {
  readonly reserved: number;
  /**
   * Reserves memory. Undefined if the connection has ended, or if that would exceed its limit, that of the tenant or that
   * of the process; this is counted as shed load.
   *
   * @param tenant who it is for, once that is known. Until then it is for strangers, who together have what a tenant has
   */
  reserve(bytes: number, tenant?: string): Reservation | undefined;
}

export interface Reservation {
  readonly bytes: number;
  /** Reserves more. False if that would exceed a limit; the reservation is then as it was. */
  grow(bytes: number): boolean;
  /** Makes it the tenant's, who is known by now. False if that would exceed the tenant's limit; it is then as it was. */
  assign(tenant: string): boolean;
  /** Can be called more than once. */
  release(): void;
}

export interface MemoryLimits {
  /** Of the process. */
  readonly totalBytes: number;
  readonly connectionBytes: number;
  /** Of all connections of a workspace: less than the total, so that no tenant can use up what all of them share. */
  readonly tenantBytes: number;
  /**
   * An account that holds no more than this is served although the total, or what its tenant has, is used up, as long as
   * such accounts stay within as much again: a few large requests must not shut out everybody's small ones.
   */
  readonly smallBytes: number;
}

/** Whose tenant is not known, or who has none. */
const strangers = "";

export function createMemoryBudget(limits: MemoryLimits, shedding: ShedCounter): MemoryBudget {
  const { totalBytes, connectionBytes, tenantBytes, smallBytes } = limits;
  const accounts = new WeakMap<Connection, MemoryAccount>();
  const reservedByTenant = new Map<string, number>();
  let reserved = 0;

  const ofTenant = (tenant: string) => reservedByTenant.get(tenant) ?? 0;

  function addToTenant(bytes: number, tenant: string): void {
    const sum = ofTenant(tenant) + bytes;
    if (sum === 0) reservedByTenant.delete(tenant);
    else reservedByTenant.set(tenant, sum);
  }

  function admits(within: boolean): boolean {
    if (!within) shedding.count("memory");
    return within;
  }

  function fits(bytes: number, ofAccount: number, tenant: string): boolean {
    const times = ofAccount + bytes <= smallBytes ? 2 : 1;
    return admits(
      reserved + bytes <= times * totalBytes &&
        ofAccount + bytes <= connectionBytes &&
        ofTenant(tenant) + bytes <= times * tenantBytes,
    );
  }

  function openAccount(connection: Connection): MemoryAccount {
    const open = new Set<Reservation>();
    let ofAccount = 0;
    let closed = false;

    function add(bytes: number, tenant: string): void {
      reserved += bytes;
      ofAccount += bytes;
      addToTenant(bytes, tenant);
    }

    connection.once("close", () => {
      closed = true;
      for (const reservation of open) reservation.release();
    });

    return {
      get reserved() {
        return ofAccount;
      },
      reserve(bytes, tenant = strangers) {
        // A call can outlive its connection. What it would reserve then, no close would ever release.
        if (closed || connection.destroyed === true || !fits(bytes, ofAccount, tenant)) return undefined;
        let held = bytes;
        let holder = tenant;
        add(bytes, holder);
        const reservation: Reservation = {
          get bytes() {
            return held;
          },
          grow(more) {
            if (!open.has(reservation) || !fits(more, ofAccount, holder)) return false;
            held += more;
            add(more, holder);
            return true;
          },
          assign(known) {
            if (known === holder) return true;
            if (!open.has(reservation) || !admits(ofTenant(known) + held <= tenantBytes)) return false;
            addToTenant(-held, holder);
            addToTenant(held, known);
            holder = known;
            return true;
          },
          release() {
            if (!open.delete(reservation)) return;
            add(-held, holder);
            held = 0;
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
      const known = accounts.get(connection);
      if (known !== undefined) return known;
      const account = openAccount(connection);
      accounts.set(connection, account);
      return account;
    },
  };
}
