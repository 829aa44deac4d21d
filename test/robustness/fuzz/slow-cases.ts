import { watchLoop, workUnit } from "../../support/loop-watch.js";
import type { Sender } from "./send.js";
import { describe, type Sent } from "./sent.js";

/** Finds the cases that keep the service, which runs in this process, from everything else for too long. */
export interface SlowCases {
  /** Sends as before, and notes what else was in flight when the event loop stood still. */
  readonly sender: Sender;
  /** Says how a case can be played again. Only what is named so is looked at. */
  name(sent: Sent, again: string): void;
  /** Sends the slowest once more, each alone, and says which of them were slow by themselves. */
  confirm(): Promise<Slowness>;
}

export interface Slowness {
  /** How long the slowest case takes alone, in units of work. */
  readonly slowest: number;
  readonly failings: readonly string[];
}

/**
 * How long a case may keep the event loop, measured by a piece of work that the same machine does: to parse as much JSON
 * as a request can have. The largest request that is valid takes half of this.
 */
const mostUnits = 8;

/** So many are looked at again. What stops the service is among the slowest. */
const mostConfirmed = 100;

/** A case is slow if it is so every time: the first may meet the garbage collector, or code that is not compiled yet. */
const attempts = 5;

export function watchCases(sender: Sender): SlowCases {
  const unit = workUnit();
  const bound = mostUnits * unit;
  const inFlight = new Set<Sent>();
  const names = new Map<Sent, string>();
  const slow = new Map<Sent, number>();
  const watch = watchLoop(1, (ms) => {
    if (ms < bound) return;
    for (const sent of inFlight) slow.set(sent, Math.max(ms, slow.get(sent) ?? 0));
  });

  async function alone(sent: Sent): Promise<number> {
    const times: number[] = [];
    while (times.length < attempts && Math.min(...times) > bound) {
      const exactly = watchLoop();
      await sender
        .send(sent)
        .catch(() => {})
        .finally(exactly.stop);
      times.push(exactly.longest());
    }
    return Math.min(...times);
  }

  return {
    sender: {
      async send(sent) {
        inFlight.add(sent);
        try {
          return await sender.send(sent);
        } finally {
          inFlight.delete(sent);
        }
      },
      close: () => sender.close(),
    },
    name(sent, again) {
      if (slow.has(sent)) names.set(sent, again);
    },
    async confirm() {
      watch.stop();
      const suspects = [...names].toSorted(([one], [other]) => (slow.get(other) ?? 0) - (slow.get(one) ?? 0));
      const failings: string[] = [];
      let slowest = 0;
      for (const [sent, again] of suspects.slice(0, mostConfirmed)) {
        const ms = await alone(sent);
        slowest = Math.max(slowest, ms / unit);
        if (ms <= bound) continue;
        const units = `${(ms / unit).toFixed(0)} times as long as JSON.parse does for as many bytes, ${mostUnits} is allowed`;
        failings.push(`the service stood still for ${ms.toFixed(0)} ms: ${units}\n  ${describe(sent)}\n  (${again})`);
      }
      return { slowest, failings };
    },
  };
}
