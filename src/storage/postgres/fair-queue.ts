import { type AcquireQueue, createAcquireQueue, type Waiter } from "./acquire-queue.js";

/**
 * The waiting statements of one account: its flows take turns; within a flow, first in, first out. Each flow has its own
 * limit, so a flow that sends more than its turns can serve is rejected alone.
 */
export interface FairQueue<T> {
  readonly isEmpty: boolean;
  readonly size: number;
  add(waiter: Waiter<T>, flow: unknown): void;
  /** Removes the next waiter. */
  next(): Waiter<T> | undefined;
  /** Removes a waiter that has not acquired. False if it is too late. */
  remove(waiter: Waiter<T>, flow: unknown): boolean;
  /** A statement of this flow acquired a connection without waiting. */
  acquiredImmediately(flow: unknown): void;
}

export function createFairQueue<T>(): FairQueue<T> {
  const lastAcquired = { at: Number.NEGATIVE_INFINITY };
  /** The queues of flows that may have waiters, the next one first. */
  const turns = new Map<unknown, AcquireQueue<T>>();
  /** For statements without a flow. Kept while it is empty, because it remembers whether it was standing. */
  const unnamed = open();

  function open(): AcquireQueue<T> {
    return createAcquireQueue<T>(undefined, lastAcquired);
  }

  const queueOf = (flow: unknown) => turns.get(flow) ?? (flow === undefined ? unnamed : undefined);

  return {
    get isEmpty() {
      for (const [flow, queue] of turns) {
        if (queue.size > 0) return false;
        turns.delete(flow); // all of its waiters were rejected or removed
      }
      return true;
    },
    get size() {
      let size = 0;
      for (const queue of turns.values()) size += queue.size;
      return size;
    },
    add(waiter, flow) {
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
    remove: (waiter, flow) => queueOf(flow)?.remove(waiter) ?? false,
    acquiredImmediately: (flow) => queueOf(flow)?.acquiredImmediately(),
  };
}
