// By hand: the queue of the connection pool (src/storage/postgres/fair-queue.ts) has a CoDel and a timer for each account
// that waits. Spends wait for milliseconds, and a statement takes hundreds of them.
import type { Spend } from "./store.js";

/** A spend that waits for a statement. */
export interface WaitingSpend extends Spend {
  readonly workspaceId: string | undefined;
  /** Whether it is no longer wanted, e.g. because its call has ended. It is then left out. */
  cancelled: boolean;
}

/** Spends that wait for a statement. Workspaces take turns: one that sends thousands delays itself. */
export interface SpendQueue<T extends WaitingSpend> {
  /** False if too many wait already. */
  add(spend: T): boolean;
  /** Removes the next spends, at most this many, without cancelled ones. */
  take(max: number): T[];
}

/** The maximum number of waiting spends, cancelled ones included. */
export interface QueueLimits {
  readonly ofOneWorkspace: number;
  readonly total: number;
}

export function createSpendQueue<T extends WaitingSpend>(limits: QueueLimits): SpendQueue<T> {
  /** The waiting spends of each workspace that has some. The workspace with the next turn is first. */
  const flows = new Map<string | undefined, T[]>();
  let size = 0;

  return {
    add(spend) {
      const flow = flows.get(spend.workspaceId);
      if (size >= limits.total || (flow && flow.length >= limits.ofOneWorkspace)) return false;
      size += 1;
      if (flow === undefined) flows.set(spend.workspaceId, [spend]);
      else flow.push(spend);
      return true;
    },
    take(max) {
      const taken: T[] = [];
      // A flow that is added again while the loop runs comes up again: the loop ends when it has enough, or all.
      for (const [workspaceId, flow] of flows) {
        // In V8, shift() takes constant time up to some 10,000 elements, more than the limit of a workspace.
        const spend = flow.shift() as T;
        size -= 1;
        flows.delete(workspaceId);
        if (flow.length > 0) flows.set(workspaceId, flow);
        if (!spend.cancelled && taken.push(spend) === max) break;
      }
      return taken;
    },
  };
}
