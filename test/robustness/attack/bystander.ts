// Another tenant, in a separate process, so that the CPU time of the attack does not count as its latency.
import { fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { project } from "../../../commands/project.js";
import type { AttackContext } from "./site.js";
import type { Target } from "./target.js";

/** Another tenant that makes calls while an attack runs. */
export interface Bystander {
  /** Stops its calls and returns the measurements. */
  finish(): Promise<Measurements>;
}

export interface Measurements {
  readonly calls: number;
  /** Calls that did not succeed. */
  readonly failed: number;
  /** The median latency before the attack, and the maximum during it, in milliseconds. */
  readonly normalMs: number;
  readonly worstMs: number;
}

/**
 * During an attack, a call may take this many times its normal latency. That covers some turns of the event loop, a
 * garbage collection of a full heap, and other processes on two cores. The attacks that this limit detects caused
 * latencies of a thousand times and more.
 */
const maxSlowdown = 300;

/** Resolves when it has measured the normal latency. It then continues to make calls. */
export async function startBystander(context: AttackContext, target: Target): Promise<Bystander> {
  const { key } = await target.createTenant();
  const child = fork(join(project, "dist/test/robustness/attack/bystander-process.js"), [target.httpUrl, key]);
  context.addCleanup(() => child.kill("SIGKILL"));
  await once(child, "message");
  return {
    async finish() {
      child.send("finish");
      const [measurements] = await once(child, "message");
      return measurements as Measurements;
    },
  };
}

/** The measurements as text for the report. */
export function describe({ calls, failed, normalMs, worstMs }: Measurements): string {
  const worst = `worst ${worstMs.toFixed(0)} ms, normally ${normalMs.toFixed(1)} ms`;
  return `another tenant: ${calls} calls, ${failed} failed, ${worst}`;
}

/** Whether all calls of the bystander were served in time, except for `maxFailed` of them. */
export function wasServed({ calls, failed, normalMs, worstMs }: Measurements, maxFailed = 0): boolean {
  return calls > 0 && failed <= maxFailed && worstMs <= maxSlowdown * normalMs;
}
