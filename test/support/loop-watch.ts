/** Measures how long the event loop of this process is blocked. */
export interface LoopWatch {
  /** The longest block in milliseconds since the last call, or since the start. */
  longest(): number;
  stop(): void;
}

/**
 * Reads the clock in every iteration of the event loop. The shorter of wall time and CPU time counts: while other
 * programs use the CPU, this process is not busy, and the work of other threads does not block the loop.
 *
 * @param intervalMs the interval of the readings; 0 reads continuously, which is exact and keeps a core busy
 * @param busyFor is called with the duration of each iteration
 */
export function watchLoop(intervalMs = 0, busyFor?: (ms: number) => void): LoopWatch {
  let maxBusyMs = 0;
  let timer: NodeJS.Timeout | NodeJS.Immediate;
  let wall = performance.now();
  let cpu = process.cpuUsage();
  const measure = () => {
    const nowWall = performance.now();
    const nowCpu = process.cpuUsage();
    const worked = (nowCpu.user - cpu.user + nowCpu.system - cpu.system) / 1_000;
    const busy = Math.min(nowWall - wall, worked);
    maxBusyMs = Math.max(maxBusyMs, busy);
    busyFor?.(busy);
    wall = nowWall;
    cpu = nowCpu;
    timer = next();
  };
  const next = () => (intervalMs === 0 ? setImmediate(measure) : setTimeout(measure, intervalMs));
  timer = next();
  return {
    longest() {
      const found = maxBusyMs;
      maxBusyMs = 0;
      return found;
    },
    stop() {
      clearTimeout(timer as NodeJS.Timeout);
      clearImmediate(timer as NodeJS.Immediate);
    },
  };
}

/** The minimum time in milliseconds that this machine takes for a known piece of work: parsing 128 KiB of JSON. */
export function workUnit(): number {
  const text = JSON.stringify(Array.from({ length: 3_000 }, (_, id) => ({ id, name: `key ${id}`, tags: ["a", "b"] })));
  const times = Array.from({ length: 50 }, () => {
    const began = performance.now();
    JSON.parse(text);
    return performance.now() - began;
  });
  return Math.min(...times);
}
