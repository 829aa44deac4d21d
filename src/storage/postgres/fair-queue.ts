import { type AcquireQueue, createAcquireQueue, type Waiter } from "./acquire-queue.js";

/**
 * Where the statements of one account wait: flow by flow in turn, within a flow in the order of their arrival. Each flow
 * is bounded on its own, so a flow that brings more than its turns can serve is refused alone.
 */
export interface FairQueue<T> {
  readonly isEmpty: boolean;
  readonly size: number;
  enter(waiter: Waiter<T>, flow: unknown): void;
  /** Removes the one whose turn it is. */
  next(): Waiter<T> | undefined;
  /** Removes one that has not had its turn. False if it is too late. */
  withdraw(waiter: Waiter<T>, flow: unknown): boolean;
  /** A statement of this flow did not have to wait. */
  skipped(flow: unknown): void;
}

export function createFairQueue<T>(): FairQueue<T> {
  const lastTurn = { at: Number.NEGATIVE_INFINITY };
  /** By flow, those in which somebody may wait, the next one first. */
  const turns = new Map<unknown, AcquireQueue<T>>();
  /** Of what names no flow. It stays while nobody waits, because it remembers whether it stood. */
  const unnamed = open();

  function open(): AcquireQueue<T> {
    return createAcquireQueue<T>(undefined, lastTurn);
  }

  const queueOf = (flow: unknown) => turns.get(flow) ?? (flow === undefined ? unnamed : undefined);

  return {
    get isEmpty() {
      for (const [flow, queue] of turns) {
        if (queue.size > 0) return false;
        turns.delete(flow); // all that waited there was refused or withdrawn
      }
      return true;
    },
    get size() {
      let size = 0;
      for (const queue of turns.values()) size += queue.size;
      return size;
    },
    enter(waiter, flow) {
      const queue = queueOf(flow) ?? open();
      queue.add(waiter);
      turns.set(flow, queue);
    },
    next() {
      for (const [flow, queue] of turns) {
        turns.delete(flow);
        const next = queue.next();
        if (queue.size > 0) turns.set(flow, queue);
        if (next !== undefined) return next;
      }
      return undefined;
    },
    withdraw: (waiter, flow) => queueOf(flow)?.remove(waiter) ?? false,
    skipped: (flow) => queueOf(flow)?.acquiredImmediately(),
  };
}
