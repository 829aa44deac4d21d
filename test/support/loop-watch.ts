/** Watches how long the event loop of this process is busy without a pause. */
export interface LoopWatch {
  /** The longest in milliseconds since it was last asked, or since it began. */
  longest(): number;
  stop(): void;
}

/**
 * Looks at the clock at every chance that the event loop gives. Of the wall's time and the processor's the shorter one
 * counts: while other programs have the processor, this one is not busy, and what other threads do does not stop the loop.
 *
 * @param everyMs how long to pause between; 0: not at all, which is exact, and keeps a processor busy
 * @param busyFor is called with how long it was, each time
 */
export function watchLoop(everyMs = 0, busyFor?: (ms: number) => void): LoopWatch {
  let longest = 0;
  let timer: NodeJS.Timeout | NodeJS.Immediate;
  let wall = performance.now();
  let cpu = process.cpuUsage();
  const look = () => {
    const nowWall = performance.now();
    const nowCpu = process.cpuUsage();
    const worked = (nowCpu.user - cpu.user + nowCpu.system - cpu.system) / 1_000;
    const busy = Math.min(nowWall - wall, worked);
    longest = Math.max(longest, busy);
    busyFor?.(busy);
    wall = nowWall;
    cpu = nowCpu;
    timer = next();
  };
  const next = () => (everyMs === 0 ? setImmediate(look) : setTimeout(look, everyMs));
  timer = next();
  return {
    longest() {
      const found = longest;
      longest = 0;
      return found;
    },
    stop() {
      clearTimeout(timer as NodeJS.Timeout);
      clearImmediate(timer as NodeJS.Immediate);
    },
  };
}

/** How long this machine takes, at its best, for a known piece of work: to parse 128 KiB of JSON, in milliseconds. */
export function workUnit(): number {
  const text = JSON.stringify(Array.from({ length: 3_000 }, (_, id) => ({ id, name: `key ${id}`, tags: ["a", "b"] })));
  const times = Array.from({ length: 50 }, () => {
    const began = performance.now();
    JSON.parse(text);
    return performance.now() - began;
  });
  return Math.min(...times);
}
