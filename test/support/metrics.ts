import type { TestApp } from "./harness.js";
import { readSamples, total } from "./metric-samples.js";

/** Reads a metric of a service, summed over all labels that are not given. */
export async function readMetric(app: TestApp, name: string, labels: Record<string, string> = {}): Promise<number> {
  const samples = await readSamples(app);
  if (!samples.some((sample) => sample.name === `latchkey_${name}`)) throw new Error(`there is no metric ${name}`);
  return total(samples, `latchkey_${name}`, labels);
}

/** The number of lookups of keys or workspaces so far, by cache level. */
export async function readLookups(app: TestApp, kind: "key" | "workspace") {
  const read = (source: string) => readMetric(app, "lookups_total", { kind, source });
  const [memory, redis, postgres] = await Promise.all([read("memory"), read("redis"), read("postgres")]);
  return { memory, redis, postgres };
}
