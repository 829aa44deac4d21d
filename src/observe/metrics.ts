import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { AggregatorRegistry, Counter, Gauge, Registry } from "prom-client";
import { cannotListen, reachable } from "../listening.js";

/** Everything that is measured, as it can be told to Prometheus or to another process. */
export type Metrics = Registry;

/** The same in plain data. */
export type MetricsData = Awaited<ReturnType<Metrics["getMetricsAsJSON"]>>;

/** What is read when somebody asks for the metrics. Until then, counting costs a plain addition. */
export interface Vitals {
  leaseMsLeft(): number;
  epoch(): number;
  redisInUse(): boolean;
  /** How often lookups of each kind were answered from where. */
  readonly lookups: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly renewals: Readonly<Record<string, number>>;
  readonly checks: { readonly done: number; readonly stale: number };
}

/** The metrics, by their Prometheus names. */
export function createMetrics(vitals: Vitals): Metrics {
  const registry = new Registry();

  function gauge(name: string, help: string, read: () => number): void {
    // Of several workers, the one that fares worst is told: a mean would hide it. Counters are added up.
    new Gauge({ name: `latchkey_${name}`, help, registers: [registry], collect: set, aggregator: "min" });
    function set(this: Gauge): void {
      this.set(read());
    }
  }

  function counter<Label extends string>(
    name: string,
    help: string,
    labelNames: Label[],
    read: () => [Record<Label, string>, number][],
  ): void {
    new Counter({ name: `latchkey_${name}`, help, labelNames, registers: [registry], collect: count });
    function count(this: Counter<Label>): void {
      this.reset();
      for (const [labels, value] of read()) this.inc(labels, value);
    }
  }

  gauge(
    "lease_seconds_left",
    "How long what is held may still be used; 0 if the lease is lost.",
    () => vitals.leaseMsLeft() / 1_000,
  );
  gauge("epoch", "The number of the last change known here; replicas that follow agree on it.", vitals.epoch);
  gauge("redis_in_use", "1 while Redis is asked, 0 while it is passed by or there is none.", () =>
    vitals.redisInUse() ? 1 : 0,
  );
  counter("lease_renewals_total", "Attempts to renew the lease, by result.", ["result"], () =>
    Object.entries(vitals.renewals).map(([result, value]) => [{ result }, value]),
  );
  counter("lookups_total", "Lookups of keys and workspaces, by where the answer came from.", ["kind", "source"], () =>
    Object.entries(vitals.lookups).flatMap(([kind, sources]) =>
      Object.entries(sources).map(([source, value]): [Record<"kind" | "source", string>, number] => [
        { kind, source },
        value,
      ]),
    ),
  );
  counter("spot_checks_total", "Accepted keys that were held against Postgres afterwards.", [], () => [
    [{}, vitals.checks.done],
  ]);
  counter("stale_accept_total", "Accepted keys of which it was known that they had ended. Stays 0.", [], () => [
    [{}, vitals.checks.stale],
  ]);
  return registry;
}

/** The metrics of several workers as those of one service. */
export function combineMetrics(all: readonly MetricsData[]): Metrics {
  return AggregatorRegistry.aggregate([...all]);
}

/** Serves the metrics, and nothing else, on a port of its own: they are not for the callers of the service. */
export async function serveMetrics(read: () => Promise<Metrics>, host: string, port: number) {
  const server = createServer(async (request, response) => {
    if (request.url !== "/metrics") {
      response.writeHead(404, { "content-type": "text/plain" }).end("The metrics are at /metrics.\n");
      return;
    }
    const metrics = await read();
    response.writeHead(200, { "content-type": metrics.contentType }).end(await metrics.metrics());
  });
  server.listen(port, host);
  await once(server, "listening").catch(cannotListen("METRICS_PORT", host, port));
  return {
    url: `http://${reachable(host)}:${(server.address() as AddressInfo).port}/metrics`,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
