/** One sample of the metrics. */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The metrics of a service in Prometheus' text format. */
export async function readMetricsText({ metricsUrl }: { metricsUrl: string | undefined }): Promise<string> {
  if (metricsUrl === undefined) throw new Error("the service was opened without a metricsPort");
  return (await fetch(metricsUrl)).text();
}

/** The parsed metrics of a service. Throws on a line that Prometheus could not parse. */
export async function readSamples(service: { metricsUrl: string | undefined }): Promise<Sample[]> {
  return parseSamples(await readMetricsText(service));
}

/** Parses Prometheus' text format, as far as this service uses it. */
export function parseSamples(text: string): Sample[] {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return lines.map((line) => {
    const [, name, labels = "", value] = /^([a-z_][a-z0-9_]*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    // The mean of no values is NaN, which Prometheus accepts in any letter case.
    const isNumber = !Number.isNaN(Number(value)) || /^nan$/i.test(value ?? "");
    if (name === undefined || !isNumber) throw new Error(`not a line of metrics: ${line}`);
    const pairs = [...labels.matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)].map(([, label, text]) => [label, text]);
    return { name, labels: Object.fromEntries(pairs), value: Number(value) };
  });
}

/** The names of all metrics, with their types. */
export function parseTypes(text: string): Map<string, string> {
  return new Map([...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = "", type = ""]) => [name, type]));
}

/** The sum of a metric over all labels that are not given; 0 if there is none. */
export function total(samples: readonly Sample[], name: string, labels: Readonly<Record<string, string>> = {}): number {
  return samples
    .filter((sample) => sample.name === name)
    .filter((sample) => Object.entries(labels).every(([label, value]) => sample.labels[label] === value))
    .reduce((sum, { value }) => sum + value, 0);
}
