import { exceedsLimit } from "./count-script.js";
import type { CounterReading, CounterUse } from "./counters.js";

/** Counters in the memory of this process, with the semantics of those in Redis. */
export interface LocalCounters {
  /** Counts all uses, or none if one of them would exceed its limit. */
  count(workspaceId: string, uses: readonly CounterUse[]): LocalCount;
}

/** What was counted together. */
export interface LocalCount {
  /** The counts from before. */
  readonly readings: readonly CounterReading[];
  /** Takes the uses back, because something else has refused them. */
  takeBack(): void;
}

interface Window {
  used: number;
  /** On the monotonic clock. */
  readonly endsAt: number;
}

/** Takes 30 MB. Counters beyond it are forgotten, those of the workspace that was counted least recently first. */
const maxCounters = 100_000;

/** So that no workspace can make the service forget the counters of others, however many identifiers it invents. */
const maxPerWorkspace = maxCounters / 4;

/** @param now the monotonic clock, in milliseconds */
export function createLocalCounters(
  now: () => number,
  max = maxCounters,
  perWorkspace = maxPerWorkspace,
): LocalCounters {
  /** Both maps are in the order of their last use. */
  const workspaces = new Map<string, Map<string, Window>>();
  let size = 0;

  function windowsOf(workspaceId: string): Map<string, Window> {
    const windows = workspaces.get(workspaceId) ?? new Map<string, Window>();
    workspaces.delete(workspaceId);
    workspaces.set(workspaceId, windows);
    return windows;
  }

  function add(
    windows: Map<string, Window>,
    { key, durationMs, cost }: CounterUse,
    current: Window | undefined,
  ): Window {
    const window = current ?? { used: 0, endsAt: now() + durationMs };
    if (windows.delete(key)) size -= 1;
    if (windows.size >= perWorkspace) removeOldest(windows);
    while (size >= max) forgetOne();
    window.used += cost;
    windows.set(key, window);
    size += 1;
    return window;
  }

  /** Of another workspace: one alone cannot have all counters, and the workspace in use is the last. */
  function forgetOne(): void {
    const [workspaceId, windows] = first(workspaces) ?? [];
    if (workspaceId === undefined || windows === undefined) return;
    removeOldest(windows);
    if (windows.size === 0) workspaces.delete(workspaceId);
  }

  function removeOldest(windows: Map<string, Window>): void {
    const [key] = first(windows) ?? [];
    if (key !== undefined && windows.delete(key)) size -= 1;
  }

  return {
    count(workspaceId, uses) {
      const windows = windowsOf(workspaceId);
      const at = now();
      const current = uses.map(({ key }) => {
        const window = windows.get(key);
        // If all of its uses were taken back, it has not begun.
        return window !== undefined && window.used > 0 && window.endsAt > at ? window : undefined;
      });
      const readings = uses.map(({ durationMs }, index) => {
        const { used = 0, endsAt = at + durationMs } = current[index] ?? {};
        return { used, msLeft: Math.max(1, Math.ceil(endsAt - at)) };
      });
      const passes = !uses.some((use, index) => exceedsLimit(use, readings[index]?.used ?? 0));
      const counted = passes ? uses.map((use, index) => use.cost > 0 && add(windows, use, current[index])) : [];
      return {
        readings,
        takeBack() {
          // The windows themselves, because others may have begun in their place.
          counted.forEach((window, index) => {
            if (window) window.used -= uses[index]?.cost ?? 0;
          });
        },
      };
    },
  };
}

function first<K, V>(map: ReadonlyMap<K, V>): [K, V] | undefined {
  for (const entry of map) return entry;
  return undefined;
}
