import { Worker } from "node:worker_threads";

/** For what has to be done when the parent is gone: PostgreSQL is told to stop, and gets time for it. */
const graceMs = 10_000;

/**
 * Ends this process when its parent has ended, even if its own thread is stuck in a call that does not return, as on a file
 * system that does not answer. Otherwise it would go on without end, and with nobody who knows of it.
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
