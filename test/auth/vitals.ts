import type { TestApp } from "../harness.js";

/** Reads a metric of a service, summed over all labels that are not given. */
export async function readMetric(app: TestApp, name: string, labels: Record<string, string> = {}): Promise<number> {
  const response = await fetch(app.metricsUrl ?? "");
  const lines = (await response.text()).split("\n").filter((line) => /^\w+/.exec(line)?.[0] === `latchkey_${name}`);
  if (lines.length === 0) throw new Error(`there is no metric ${name}`);
  return lines
    .filter((line) => Object.entries(labels).every(([label, value]) => line.includes(`${label}="${value}"`)))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}

/** How often keys or workspaces were found where, so far. */
export async function readLookups(app: TestApp, kind: "key" | "workspace") {
  const read = (source: string) => readMetric(app, "lookups_total", { kind, source });
  const [held, redis, postgres] = await Promise.all([read("held"), read("redis"), read("postgres")]);
  return { held, redis, postgres };
}
