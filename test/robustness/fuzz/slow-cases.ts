import type { Sender } from "../../support/clients/raw-client.js";
import { describe, type Sent } from "../../support/clients/raw-request.js";
import { watchLoop, workUnit } from "../../support/loop-watch.js";

/** Finds cases that block the event loop for too long. The service runs in this process. */
export interface SlowCases {
  /** Sends requests, and records which were in flight when the event loop was blocked. */
  readonly sender: Sender;
  /** Records how to replay a case. Only recorded cases are confirmed. */
  name(sent: Sent, replay: string): void;
  /** Sends the slowest cases again, each alone, and reports which are slow by themselves. */
  confirm(): Promise<Slowness>;
}

export interface Slowness {
  /** The time of the slowest case alone, in units of work. */
  readonly slowest: number;
  readonly failings: readonly string[];
}

/**
 * Maximum time for which a case may block the event loop. One unit is the time in which the same machine parses JSON of
 * the maximum request size. The largest valid request takes half of the maximum.
 */
const maxUnits = 8;

/** Number of cases to confirm. A case that blocks the service is among the slowest. */
const maxConfirmed = 100;

/** A case is slow only if every attempt is. A single attempt may include garbage collection or uncompiled code. */
const attempts = 5;

export function watchCases(sender: Sender): SlowCases {
  const unit = workUnit();
  const maxMs = maxUnits * unit;
  const inFlight = new Set<Sent>();
  const names = new Map<Sent, string>();
  const slow = new Map<Sent, number>();
  const watch = watchLoop(1, (ms) => {
    if (ms < maxMs) return;
    for (const sent of inFlight) slow.set(sent, Math.max(ms, slow.get(sent) ?? 0));
  });

  async function timeAlone(sent: Sent): Promise<number> {
    const times: number[] = [];
    while (times.length < attempts && Math.min(...times) > maxMs) {
      const watch = watchLoop();
      await sender
        .send(sent)
        .catch(() => {})
        .finally(watch.stop);
      times.push(watch.longest());
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
    name(sent, replay) {
      if (slow.has(sent)) names.set(sent, replay);
    },
    async confirm() {
      watch.stop();
      const suspects = [...names].toSorted(([one], [other]) => (slow.get(other) ?? 0) - (slow.get(one) ?? 0));
      const failings: string[] = [];
      let slowest = 0;
      for (const [sent, replay] of suspects.slice(0, maxConfirmed)) {
        const ms = await timeAlone(sent);
        slowest = Math.max(slowest, ms / unit);
        if (ms <= maxMs) continue;
        const units = `${(ms / unit).toFixed(0)} times as long as JSON.parse of as many bytes, maximum ${maxUnits}`;
        failings.push(
          `the event loop was blocked for ${ms.toFixed(0)} ms: ${units}\n  ${describe(sent)}\n  (${replay})`,
        );
      }
      return { slowest, failings };
    },
  };
}
