import { AggregatorRegistry, Counter, collectDefaultMetrics, Gauge, type Metric, Registry } from "prom-client";
import { type CallCounts, durationBounds } from "./call-metrics.js";

/** Everything that is measured, as it can be told to Prometheus or to another process. */
export type Metrics = Registry;

/** The same in plain data. */
export type MetricsData = Awaited<ReturnType<Metrics["getMetricsAsJSON"]>>;

/** What is read when somebody asks for the metrics. Until then, counting costs a plain addition. */
export interface MetricSources {
  calls(): readonly CallCounts[];
  leaseMsLeft(): number;
  knownTransactions(): number;
  redisInUse(): boolean;
  /** How often lookups of each kind were answered from where. */
  readonly lookups: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly renewals: Readonly<Record<string, number>>;
  readonly checks: { readonly done: number; readonly stale: number };
  pool(): {
    readonly busy: number;
    readonly free: number;
    /** By class. */
    readonly waiting: Readonly<Record<string, number>>;
  };
  /** How much memory is reserved for clients, in bytes. */
  memoryReserved(): number;
  /** How often something was turned away, by what there was too little of. */
  readonly shed: Readonly<Record<string, number>>;
}

/** The metrics, by their Prometheus names. */
export function createMetrics(vitals: MetricSources): Metrics {
  const registry = new Registry();
  const { counter, gauge, histogram } = metersIn(registry);

  counter("calls_total", "Calls that were answered, by the code of the answer.", ["protocol", "method", "code"], () =>
    vitals
      .calls()
      .flatMap(({ protocol, method, byCode }) =>
        [...byCode].map(([code, value]) => [{ protocol, method, code }, value]),
      ),
  );
  histogram("call_duration_seconds", "How long calls took, from their head to their answer.", durationBounds, () =>
    vitals
      .calls()
      .map(({ protocol, method, byDuration, seconds }) => ({ labels: { protocol, method }, byDuration, seconds })),
  );
  counter("lookups_total", "Lookups of keys and workspaces, by where the answer came from.", ["kind", "source"], () =>
    Object.entries(vitals.lookups).flatMap(([kind, sources]) =>
      Object.entries(sources).map(([source, value]) => [{ kind, source }, value]),
    ),
  );

  // Of several workers, the one that fares worst is told: a mean would hide it.
  gauge("lease_seconds_left", "How long what is held may still be used; 0 if the lease is lost.", "min", [], () => [
    [{}, vitals.leaseMsLeft() / 1_000],
  ]);
  counter("lease_renewals_total", "Attempts to renew the lease, by result.", ["result"], () =>
    Object.entries(vitals.renewals).map(([result, value]) => [{ result }, value]),
  );
  const known = "The id of the first transaction whose changes are not known here; replicas agree within a lease.";
  gauge("known_transaction_id", known, "min", [], () => [[{}, vitals.knownTransactions()]]);
  counter("spot_checks_total", "Accepted keys that were held against Postgres afterwards.", [], () => [
    [{}, vitals.checks.done],
  ]);
  counter("stale_accept_total", "Accepted keys of which it was known that they had ended. Stays 0.", [], () => [
    [{}, vitals.checks.stale],
  ]);

  gauge("redis_in_use", "1 while Redis is asked, 0 while it is passed by or there is none.", "min", [], () => [
    [{}, vitals.redisInUse() ? 1 : 0],
  ]);
  gauge("pool_connections", "Connections to Postgres that calls may use, by state.", "sum", ["state"], () => {
    const { busy, free } = vitals.pool();
    return [
      [{ state: "busy" }, busy],
      [{ state: "free" }, free],
    ];
  });
  gauge("pool_waiting_statements", "Statements that wait for another to be done, by class.", "sum", ["class"], () =>
    Object.entries(vitals.pool().waiting).map(([name, value]) => [{ class: name }, value]),
  );
  counter(
    "shed_total",
    "Calls, statements and connections turned away, by what there was too little of.",
    ["bottleneck"],
    () => Object.entries(vitals.shed).map(([bottleneck, value]) => [{ bottleneck }, value]),
  );
  gauge("memory_reserved_bytes", "Memory reserved for requests and responses of clients.", "sum", [], () => [
    [{}, vitals.memoryReserved()],
  ]);
  return Registry.merge([registry, ofProcess()]);
}

/** The metrics of several workers as those of one service. */
export function combineMetrics(all: readonly MetricsData[]): Metrics {
  return AggregatorRegistry.aggregate(all.map((metrics) => metrics.map(worstLag)));
}

/** What was counted, without what stood at that moment: all that is left to tell of processes that have ended. */
export async function combineCounts(all: readonly MetricsData[]): Promise<MetricsData> {
  const combined = await combineMetrics(all).getMetricsAsJSON();
  return combined.filter(({ type }) => ["counter", "histogram"].includes(String(type)));
}

/** Of the slowest event loop. Left to itself, prom-client tells the mean of all percentiles. */
function worstLag(metric: MetricsData[number]): MetricsData[number] {
  return /^nodejs_eventloop_lag_(p\d+_)?seconds$/.test(metric.name) ? { ...metric, aggregator: "max" } : metric;
}

/** Values with their labels. */
type Samples<Label extends string> = [Record<Label, string>, number][];

interface Durations {
  readonly labels: Readonly<Record<string, string>>;
  readonly byDuration: readonly number[];
  readonly seconds: number;
}

/** Ways to say what is measured; nothing is computed until somebody asks. */
function metersIn(registry: Registry) {
  const registers = [registry];
  return {
    gauge<Label extends string>(
      name: string,
      help: string,
      aggregator: "min" | "sum",
      labelNames: Label[],
      read: () => Samples<Label>,
    ): void {
      new Gauge({ name: `latchkey_${name}`, help, labelNames, registers, aggregator, collect: set });
      function set(this: Gauge<Label>): void {
        for (const [labels, value] of read()) this.set(labels, value);
      }
    },

    counter<Label extends string>(name: string, help: string, labelNames: Label[], read: () => Samples<Label>): void {
      new Counter({ name: `latchkey_${name}`, help, labelNames, registers, collect: count });
      function count(this: Counter<Label>): void {
        this.reset();
        for (const [labels, value] of read()) this.inc(labels, value);
      }
    },

    /** prom-client's own can only be told one value after the other. This one is told what was counted elsewhere. */
    histogram(name: string, help: string, bounds: readonly number[], read: () => Durations[]): void {
      const described = { name: `latchkey_${name}`, help, type: "histogram", aggregator: "sum" };
      const get = async () => ({
        ...described,
        values: read().flatMap((durations) => histogramValues(described.name, bounds, durations)),
      });
      registry.registerMetric({ ...described, get } as unknown as Metric);
    },
  };
}

/** As Prometheus has it, each bucket holds those before it. */
function histogramValues(name: string, bounds: readonly number[], { labels, byDuration, seconds }: Durations) {
  let count = 0;
  const buckets = byDuration.map((more, place) => {
    count += more;
    return { metricName: `${name}_bucket`, labels: { ...labels, le: bounds[place] ?? "+Inf" }, value: count };
  });
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels, value: seconds },
    { metricName: `${name}_count`, labels, value: count },
  ];
}

let processMetrics: Registry | undefined;

/** Memory, CPU, event-loop lag and the like, by the names that prom-client gives them. A process has them once. */
function ofProcess(): Registry {
  if (processMetrics === undefined) {
    processMetrics = new Registry();
    collectDefaultMetrics({ register: processMetrics });
  }
  return processMetrics;
}
