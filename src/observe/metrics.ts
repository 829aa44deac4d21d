import { AggregatorRegistry, Counter, collectDefaultMetrics, Gauge, Registry } from "prom-client";
import { type CallCounts, durationBounds } from "./call-metrics.js";

/** All metrics of a process, for Prometheus or for another process. */
export type Metrics = Registry;

/** The same as plain data. */
export type MetricsData = Awaited<ReturnType<Metrics["getMetricsAsJSON"]>>;

/** The sources of the metrics. They are read only when the metrics are scraped, so counting costs a plain addition. */
export interface MetricSources {
  calls(): readonly CallCounts[];
  leaseMsLeft(): number;
  knownTransactions(): number;
  redisInUse(): boolean;
  /** The number of lookups, by kind and cache level. */
  readonly lookups: Readonly<Record<string, Readonly<Record<string, number>>>>;
  /** The number of checks of rate limits, by scope and result. */
  readonly rateLimitChecks: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly renewals: Readonly<Record<string, number>>;
  readonly checks: { readonly done: number; readonly stale: number };
  pool(): {
    readonly busy: number;
    readonly free: number;
    /** By statement class. */
    readonly waiting: Readonly<Record<string, number>>;
  };
  /** The part of the memory budget that is in use, in bytes. */
  memoryReserved(): number;
  /** How often work was shed, by bottleneck. */
  readonly shed: Readonly<Record<string, number>>;
  /** What is running, as labels. */
  readonly build: { readonly version: string; readonly node_version: string; readonly commit: string };
  readonly verifiers: {
    readonly openStreams: number;
    /** The number of verifications that clients have reported, by code. */
    readonly verifications: Readonly<Record<string, number>>;
  };
}

/** The metrics, by their Prometheus names. Returns a function that reads all of them. */
export function createMetrics(sources: MetricSources): () => Metrics {
  const registry = new Registry();
  const { counter, gauge } = registrationsIn(registry);

  counter("calls_total", "Finished calls, by result code.", ["protocol", "method", "code"], () =>
    sources
      .calls()
      .flatMap(({ protocol, method, byCode }) =>
        [...byCode].map(([code, value]) => [{ protocol, method, code }, value]),
      ),
  );
  counter("lookups_total", "Lookups of keys, workspaces and overrides, by cache level.", ["kind", "source"], () =>
    Object.entries(sources.lookups).flatMap(([kind, bySource]) =>
      Object.entries(bySource).map(([source, value]) => [{ kind, source }, value]),
    ),
  );

  const checksHelp = "Checks of rate limits, by where they were counted and by result.";
  counter("rate_limit_checks_total", checksHelp, ["scope", "result"], () =>
    Object.entries(sources.rateLimitChecks).flatMap(([scope, byResult]) =>
      Object.entries(byResult).map(([result, value]) => [{ scope, result }, value]),
    ),
  );

  // With several workers, the worst value is reported: a mean would hide it.
  gauge("lease_seconds_left", "Remaining time of the lease on cached key state. 0: expired.", "min", [], () => [
    [{}, sources.leaseMsLeft() / 1_000],
  ]);
  counter("lease_renewals_total", "Attempts to renew the lease, by result.", ["result"], () =>
    Object.entries(sources.renewals).map(([result, value]) => [{ result }, value]),
  );
  const knownHelp =
    "Id of the first transaction whose changes this process does not know. Replicas agree within a lease.";
  gauge("known_transaction_id", knownHelp, "min", [], () => [[{}, sources.knownTransactions()]]);
  counter("spot_checks_total", "Accepted keys that were checked again in PostgreSQL.", [], () => [
    [{}, sources.checks.done],
  ]);
  counter("stale_accept_total", "Accepted keys that a known change had already revoked. Must stay 0.", [], () => [
    [{}, sources.checks.stale],
  ]);

  gauge("redis_in_use", "1 while Redis is used, 0 while it is bypassed or not configured.", "min", [], () => [
    [{}, sources.redisInUse() ? 1 : 0],
  ]);
  gauge("pool_connections", "Connections to PostgreSQL in the pool of calls, by state.", "sum", ["state"], () => {
    const { busy, free } = sources.pool();
    return [
      [{ state: "busy" }, busy],
      [{ state: "free" }, free],
    ];
  });
  gauge("pool_waiting_statements", "Statements in the acquire queue, by statement class.", "sum", ["class"], () =>
    Object.entries(sources.pool().waiting).map(([name, value]) => [{ class: name }, value]),
  );
  counter("shed_total", "Calls, statements and connections that were shed, by bottleneck.", ["bottleneck"], () =>
    Object.entries(sources.shed).map(([bottleneck, value]) => [{ bottleneck }, value]),
  );
  gauge("memory_reserved_bytes", "Memory budget in use by requests and responses in flight.", "sum", [], () => [
    [{}, sources.memoryReserved()],
  ]);
  gauge("verifier_streams", "Open streams of clients that verify keys in their own process.", "sum", [], () => [
    [{}, sources.verifiers.openStreams],
  ]);
  counter("verifier_verifications_total", "Verifications that such clients have reported, by code.", ["code"], () =>
    Object.entries(sources.verifiers.verifications).map(([code, value]) => [{ code }, value]),
  );
  gauge("build_info", "What is running. The value is always 1.", "min", ["version", "node_version", "commit"], () => [
    [sources.build, 1],
  ]);
  return () => Registry.merge([registry, durationsOf(sources.calls()), processRegistry()]);
}

/** Aggregates the metrics of several workers. */
export function combineMetrics(all: readonly MetricsData[]): Metrics {
  return AggregatorRegistry.aggregate(all.map((metrics) => metrics.map(withMaxLag)));
}

/** Aggregates counters and histograms without gauges. For processes that have ended: their gauges mean nothing now. */
export async function combineCounts(all: readonly MetricsData[]): Promise<MetricsData> {
  const combined = await combineMetrics(all).getMetricsAsJSON();
  return combined.filter(({ type }) => ["counter", "histogram"].includes(String(type)));
}

/** Reports the lag of the slowest event loop. By default, prom-client would report the mean of all percentiles. */
function withMaxLag(metric: MetricsData[number]): MetricsData[number] {
  return /^nodejs_eventloop_lag_(p\d+_)?seconds$/.test(metric.name) ? { ...metric, aggregator: "max" } : metric;
}

/** Values with their labels. */
type Samples<Label extends string> = [Record<Label, string>, number][];

/** Functions that register metrics. Values are computed only when the metrics are scraped. */
function registrationsIn(registry: Registry) {
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
  };
}

/**
 * The durations of calls, as a registry of its own. prom-client's histogram accepts only single observations, and these are
 * finished buckets. Its aggregation of several processes accepts those.
 */
function durationsOf(calls: readonly CallCounts[]): Registry {
  const name = "latchkey_call_duration_seconds";
  const help = "Duration of calls, from headers to response.";
  const values = calls.flatMap((counts) => histogramValues(name, counts));
  return AggregatorRegistry.aggregate([[{ name, help, type: "histogram", aggregator: "sum", values }]]);
}

/** Prometheus buckets are cumulative: each one includes those before it. */
function histogramValues(name: string, { protocol, method, byDuration, seconds }: CallCounts) {
  const labels = { protocol, method };
  let count = 0;
  const buckets = byDuration.map((inBucket, index) => {
    count += inBucket;
    return { metricName: `${name}_bucket`, labels: { ...labels, le: durationBounds[index] ?? "+Inf" }, value: count };
  });
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels, value: seconds },
    { metricName: `${name}_count`, labels, value: count },
  ];
}

let processMetrics: Registry | undefined;

/** Memory, CPU, event-loop lag and so on, under prom-client's names. A process registers them once. */
function processRegistry(): Registry {
  if (processMetrics === undefined) {
    processMetrics = new Registry();
    collectDefaultMetrics({ register: processMetrics });
  }
  return processMetrics;
}
