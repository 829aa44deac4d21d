import { readFileSync } from "node:fs";
import { parser } from "@prometheus-io/lezer-promql";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createWorkspace, post } from "../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../support/harness.js";
import { parseSamples, parseTypes, readMetricsText, type Sample } from "../support/metric-samples.js";

let app: TestApp;
let types: Map<string, string>;
let samples: Sample[];

beforeAll(async () => {
  app = await openTestApp({ metricsPort: 0 });
  const { key } = await createWorkspace(app.httpUrl);
  await post(app.httpUrl, "/v1/keys.listKeys", key, {});
  const text = await readMetricsText(app);
  types = parseTypes(text);
  samples = parseSamples(text);
});
afterAll(() => app.close());

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

const dashboard = JSON.parse(readFileSync("dashboards/latchkey.json", "utf8"));
const panels: Panel[] = dashboard.panels;
const queries = panels.flatMap(({ title, targets = [] }) => targets.map((target) => ({ title, ...target })));

/** What Prometheus itself adds to what it reads. */
const addedLabels = new Set(["instance", "job"]);

describe("the dashboard", () => {
  it("asks, in each of its panels", () => {
    expect(panels.filter(({ type, targets = [] }) => type !== "row" && targets.length === 0)).toEqual([]);
    expect(queries.length).toBeGreaterThan(20);
  });

  it.each(queries)("$title: $expr", ({ expr, legendFormat }) => {
    const { errors, selectors, grouping } = readQuery(expr);
    expect(errors, "PromQL can be read").toEqual([]);
    expect(selectors.length).toBeGreaterThan(0);
    for (const { name, labels } of selectors) {
      const served = samples.filter((sample) => sample.name === name);
      expect(
        served.map((sample) => sample.name),
        `${name} is served`,
      ).not.toEqual([]);
      const known = new Set([...addedLabels, ...served.flatMap((sample) => Object.keys(sample.labels))]);
      const used = [...labels, ...grouping, ...labelsIn(legendFormat)];
      expect(
        used.filter((label) => !known.has(label)),
        `labels of ${name}`,
      ).toEqual([]);
    }
  });

  it("shows every metric of ours", () => {
    const asked = new Set(queries.flatMap(({ expr }) => readQuery(expr).selectors.map(({ name }) => name)));
    const ours = [...types.keys()].filter((name) => name.startsWith("latchkey_"));
    expect(ours.length).toBeGreaterThan(10);
    expect(ours.filter((name) => !asked.has(name) && !asked.has(`${name}_bucket`))).toEqual([]);
  });

  it("chooses among the replicas by a metric that is served", () => {
    const chosen = JSON.stringify(dashboard.templating).match(/latchkey_\w+/g) ?? [];
    expect(chosen).not.toEqual([]);
    expect(chosen.filter((name) => !types.has(name))).toEqual([]);
  });

  it("has its panels side by side: none covers another, and none has another's id", () => {
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, cell) => `${x + (cell % w)},${y + Math.floor(cell / w)}`),
    );
    expect(new Set(cells).size).toBe(cells.length);
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    expect(Math.max(...panels.map(({ gridPos: { x, w } }) => x + w))).toBe(24);
  });
});

describe("the documentation", () => {
  const reference = readFileSync("docs/reference/metrics-and-logs.md", "utf8");

  it("names every metric of ours, and none that is not there", () => {
    const named = new Set(reference.match(/\blatchkey_[a-z_]+/g));
    const ours = [...types.keys()].filter((name) => name.startsWith("latchkey_"));
    expect([...named].sort()).toEqual(ours.sort());
  });

  it("names metrics of the process that are there", () => {
    const named = reference.match(/\b(process|nodejs)_[a-z0-9_]+[a-z0-9]\b/g) ?? [];
    expect(named).not.toEqual([]);
    expect(named.filter((name) => !types.has(name))).toEqual([]);
  });

  it.each(["README.md", "docs/operations/deployment.md", "docs/architecture/revocation.md"])(
    "names no metric that is not there in %s",
    (path) => {
      const named = readFileSync(path, "utf8").match(/\blatchkey_[a-z_]+/g) ?? [];
      expect(named.filter((name) => !types.has(name))).toEqual([]);
    },
  );
});

/** What a query selects and groups by, and what of it is not PromQL. */
function readQuery(query: string) {
  const text = query.replaceAll("$__rate_interval", "5m");
  const errors: string[] = [];
  const selectors: { name: string; labels: string[] }[] = [];
  const grouping: string[] = [];
  parser.parse(text).iterate({
    enter({ name, from, to, node, type }) {
      const word = text.slice(from, to);
      if (type.isError) errors.push(`at ${from}: ${text.slice(from)}`);
      if (name === "VectorSelector") selectors.push({ name: /^\w+/.exec(word)?.[0] ?? word, labels: [] });
      if (name === "LabelName" && node.parent?.name === "GroupingLabels") grouping.push(word);
      if (name === "LabelName" && node.parent?.name.endsWith("LabelMatcher")) selectors.at(-1)?.labels.push(word);
    },
  });
  return { errors, selectors, grouping };
}

/** The labels that a legend is made of. */
function labelsIn(legend: string): string[] {
  return [...legend.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = ""]) => label);
}
