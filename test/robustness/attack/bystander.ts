// Another tenant, in a process of its own, so that the work of an attack does not count as its waiting.
import { fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { project } from "../../../commands/project.js";
import type { Site } from "./site.js";
import type { Target } from "./target.js";

/** How another tenant fares while an attack runs. */
export interface Bystander {
  /** Ends its calls. */
  finish(): Promise<Experience>;
}

export interface Experience {
  readonly calls: number;
  /** Calls that were not answered with success. */
  readonly failed: number;
  /** How long a call took at the median before the attack, in milliseconds, and at worst during it. */
  readonly usualMs: number;
  readonly worstMs: number;
}

/**
 * A call may take this many times the usual during an attack: some turns of the event loop, a garbage collection of a
 * full heap, and other processes on two cores. The attacks that this is for made it wait a thousand times as long and more.
 */
const mostTimesUsual = 300;

/** Resolves when it has seen how long calls usually take, and goes on calling. */
export async function startBystander(site: Site, target: Target): Promise<Bystander> {
  const { key } = await target.createTenant();
  const child = fork(join(project, "dist/test/attack/bystander-process.js"), [target.httpUrl, key]);
  site.afterwards(() => child.kill("SIGKILL"));
  await once(child, "message");
  return {
    async finish() {
      child.send("finish");
      const [experience] = await once(child, "message");
      return experience as Experience;
    },
  };
}

/** In words, for a report. */
export function describe({ calls, failed, usualMs, worstMs }: Experience): string {
  const worst = `worst ${worstMs.toFixed(0)} ms, usually ${usualMs.toFixed(1)} ms`;
  return `another tenant: ${calls} calls, ${failed} failed, ${worst}`;
}

/** Whether nobody was kept waiting for long. */
export function wasServed({ calls, failed, usualMs, worstMs }: Experience, mostFailed = 0): boolean {
  return calls > 0 && failed <= mostFailed && worstMs <= mostTimesUsual * usualMs;
}
