import { Worker } from "node:worker_threads";

/** The time for the normal shutdown after the parent is gone: PostgreSQL gets a stop signal, and needs time to stop. */
const graceMs = 10_000;

/**
 * Ends this process when its parent has exited, even if its main thread is blocked in a call that does not return, for
 * example on a file system that does not respond. Otherwise it would run forever as an orphan.
 */
export function endWithParent(): void {
  const watch = `
    const parent = ${process.ppid};
    const timer = setInterval(() => {
      if (process.ppid === parent) return;
      clearInterval(timer);
      setTimeout(() => process.kill(process.pid, "SIGKILL"), ${graceMs});
    }, 1_000);`;
  new Worker(watch, { eval: true, execArgv: [], env: {} }).unref();
}
