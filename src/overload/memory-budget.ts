import type { EventEmitter } from "node:events";
import type { Shedding } from "./shedding.js";

/**
 * The memory that clients can make this process hold, over all connections of both ports: request bytes, responses that
 * are not read yet, requests that wait, streams that stay. Whatever is not reserved here is not held for a client.
 */
export interface MemoryBudget {
  /** How many bytes are reserved. 0 once no connection is open. */
  readonly reserved: number;
  /** The account of a connection. It ends when its socket closes, and with it everything that is still reserved there. */
  accountOf(socket: EventEmitter): MemoryAccount;
}

/** What one connection holds. */
export interface MemoryAccount {
  readonly reserved: number;
  /**
   * Reserves memory. Undefined if that would exceed the limit of the connection, of the tenant or of the process; that is
   * counted as shed load.
   *
   * @param tenant the workspace that it is for, once that is known
   */
  reserve(bytes: number, tenant?: string): Reservation | undefined;
}

export interface Reservation {
  readonly bytes: number;
  /** Reserves more. False if that would exceed a limit; the reservation is then as it was. */
  grow(bytes: number): boolean;
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
   * An account that holds no more than this is served although the total is used up, as long as such accounts stay within
   * another total of the same size: a few large requests must not shut out everybody's small ones.
   */
  readonly smallBytes: number;
}

export function createMemoryBudget(limits: MemoryLimits, shedding: Shedding): MemoryBudget {
  const { totalBytes, connectionBytes, tenantBytes, smallBytes } = limits;
  const accounts = new WeakMap<EventEmitter, MemoryAccount>();
  const reservedByTenant = new Map<string, number>();
  let reserved = 0;

  function fits(bytes: number, ofAccount: number, ofTenant: number): boolean {
    const total = ofAccount + bytes <= smallBytes ? 2 * totalBytes : totalBytes;
    const admitted =
      reserved + bytes <= total && ofAccount + bytes <= connectionBytes && ofTenant + bytes <= tenantBytes;
    if (!admitted) shedding.count("memory");
    return admitted;
  }

  function openAccount(socket: EventEmitter): MemoryAccount {
    const open = new Set<Reservation>();
    let ofAccount = 0;
    let closed = false;

    function add(bytes: number, tenant: string | undefined): void {
      reserved += bytes;
      ofAccount += bytes;
      if (tenant === undefined) return;
      const ofTenant = (reservedByTenant.get(tenant) ?? 0) + bytes;
      if (ofTenant === 0) reservedByTenant.delete(tenant);
      else reservedByTenant.set(tenant, ofTenant);
    }

    const ofTenant = (tenant: string | undefined) => (tenant && reservedByTenant.get(tenant)) || 0;

    socket.once("close", () => {
      closed = true;
      for (const reservation of open) reservation.release();
    });

    return {
      get reserved() {
        return ofAccount;
      },
      reserve(bytes, tenant) {
        if (closed || !fits(bytes, ofAccount, ofTenant(tenant))) return undefined;
        let held = bytes;
        add(bytes, tenant);
        const reservation: Reservation = {
          get bytes() {
            return held;
          },
          grow(more) {
            if (!open.has(reservation) || !fits(more, ofAccount, ofTenant(tenant))) return false;
            held += more;
            add(more, tenant);
            return true;
          },
          release() {
            if (!open.delete(reservation)) return;
            add(-held, tenant);
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
    accountOf(socket) {
      const known = accounts.get(socket);
      if (known !== undefined) return known;
      const account = openAccount(socket);
      accounts.set(socket, account);
      return account;
    },
  };
}
