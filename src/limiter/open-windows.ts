import { LRUCache } from "lru-cache";

/**
 * Estimates how many windows a workspace has open in Redis, of those that this process has begun. Redis cannot tell: it does
 * not count keys with a common prefix as they expire.
 *
 * The estimate lacks only windows whose answer was lost. It is at most about a third too high: durations are rounded up to a
 * step of a geometric scale, and ends to an eighth of that step. So it takes constant time and memory, whatever durations a
 * client invents.
 */
export interface OpenWindows {
  count(workspaceId: string): number;
  add(workspaceId: string, durationMs: number): void;
}

/** The factor between two steps is 2 ** (1 / stepsPerDoubling). */
const stepsPerDoubling = 4;

/** A window that begins in one slot is open for at most this many further ones. */
const slotsPerStep = 8;

/** The workspaces that are remembered. A workspace with one duration takes about 500 bytes. */
const maxWorkspaces = 10_000;

/** The windows of about the same duration, by the slot of time in which they began. */
interface Step {
  readonly slotMs: number;
  /** The slots until `latest`, each at its number modulo the length. */
  readonly begun: number[];
  latest: number;
}

/** @param now the monotonic clock, in milliseconds */
export function createOpenWindows(now: () => number): OpenWindows {
  const workspaces = new LRUCache<string, Map<number, Step>>({ max: maxWorkspaces });

  /** Forgets the windows that have ended since the last call. */
  function advance(step: Step): void {
    const present = Math.floor(now() / step.slotMs);
    const { length } = step.begun;
    for (let slot = Math.max(step.latest + 1, present - length + 1); slot <= present; slot++) {
      step.begun[slot % length] = 0;
    }
    step.latest = present;
  }

  return {
    count(workspaceId) {
      let open = 0;
      for (const step of workspaces.get(workspaceId)?.values() ?? []) {
        advance(step);
        for (const begun of step.begun) open += begun;
      }
      return open;
    },
    add(workspaceId, durationMs) {
      const steps = workspaces.get(workspaceId) ?? new Map<number, Step>();
      workspaces.set(workspaceId, steps);
      const exponent = Math.ceil(Math.log2(durationMs) * stepsPerDoubling);
      const step = steps.get(exponent) ?? newStep(2 ** (exponent / stepsPerDoubling));
      steps.set(exponent, step);
      advance(step);
      const slot = step.latest % step.begun.length;
      step.begun[slot] = (step.begun[slot] ?? 0) + 1;
    },
  };
}

function newStep(durationMs: number): Step {
  return { slotMs: durationMs / slotsPerStep, begun: Array(slotsPerStep + 1).fill(0), latest: 0 };
}
