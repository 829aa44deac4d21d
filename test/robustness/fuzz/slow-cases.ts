import type { RawClient } from "../../support/clients/raw-client.js";
import { describe, type RawRequest } from "../../support/clients/raw-request.js";
import { watchLoop, workUnit } from "../../support/loop-watch.js";

/** Finds cases that block the event loop for too long. The service runs in this process. */
export interface SlowCases {
  /** Sends requests, and records which were in flight when the event loop was blocked. */
  readonly client: RawClient;
  /** Records how to replay a case. Only recorded cases are confirmed. */
  name(raw: RawRequest, replay: string): void;
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

export function watchCases(client: RawClient): SlowCases {
  const unit = workUnit();
  const maxMs = maxUnits * unit;
  const inFlight = new Set<RawRequest>();
  const names = new Map<RawRequest, string>();
  const slow = new Map<RawRequest, number>();
  const watch = watchLoop(1, (ms) => {
    if (ms < maxMs) return;
    for (const raw of inFlight) slow.set(raw, Math.max(ms, slow.get(raw) ?? 0));
  });

  async function timeAlone(raw: RawRequest): Promise<number> {
    const times: number[] = [];
    while (times.length < attempts && Math.min(...times) > maxMs) {
      const watch = watchLoop();
      await client
        .send(raw)
        .catch(() => {})
        .finally(watch.stop);
      times.push(watch.longest());
    }
    return Math.min(...times);
  }

  return {
    client: {
      async send(raw) {
        inFlight.add(raw);
        try {
          return await client.send(raw);
        } finally {
          inFlight.delete(raw);
        }
      },
      close: () => client.close(),
    },
    name(raw, replay) {
      if (slow.has(raw)) names.set(raw, replay);
    },
    async confirm() {
      watch.stop();
      const suspects = [...names].toSorted(([one], [other]) => (slow.get(other) ?? 0) - (slow.get(one) ?? 0));
      const failings: string[] = [];
      let slowest = 0;
      for (const [raw, replay] of suspects.slice(0, maxConfirmed)) {
        const ms = await timeAlone(raw);
        slowest = Math.max(slowest, ms / unit);
        if (ms <= maxMs) continue;
        const units = `${(ms / unit).toFixed(0)} times as long as JSON.parse of as many bytes, maximum ${maxUnits}`;
        failings.push(
          `the event loop was blocked for ${ms.toFixed(0)} ms: ${units}\n  ${describe(raw)}\n  (${replay})`,
        );
      }
      return { slowest, failings };
    },
  };
}
