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

/** Labels that Prometheus itself adds. */
const addedLabels = new Set(["instance", "job"]);

describe("the dashboard", () => {
  it("has a query in each panel", () => {
    expect(panels.filter(({ type, targets = [] }) => type !== "row" && targets.length === 0)).toEqual([]);
    expect(queries.length).toBeGreaterThan(20);
  });

  it.each(queries)("$title: $expr", ({ expr, legendFormat }) => {
    const { errors, selectors, grouping } = readQuery(expr);
    expect(errors, "PromQL is valid").toEqual([]);
    expect(selectors.length).toBeGreaterThan(0);
    for (const { name, labels } of selectors) {
      const served = samples.filter((sample) => sample.name === name);
      expect(
        served.map((sample) => sample.name),
        `${name} is exported`,
      ).not.toEqual([]);
      const known = new Set([...addedLabels, ...served.flatMap((sample) => Object.keys(sample.labels))]);
      const used = [...labels, ...grouping, ...labelsIn(legendFormat)];
      expect(
        used.filter((label) => !known.has(label)),
        `labels of ${name}`,
      ).toEqual([]);
    }
  });

  it("shows every metric of the service", () => {
    const asked = new Set(queries.flatMap(({ expr }) => readQuery(expr).selectors.map(({ name }) => name)));
    const ours = [...types.keys()].filter((name) => name.startsWith("latchkey_"));
    expect(ours.length).toBeGreaterThan(10);
    expect(ours.filter((name) => !asked.has(name) && !asked.has(`${name}_bucket`))).toEqual([]);
  });

  it("selects replicas by a metric that is exported", () => {
    const chosen = JSON.stringify(dashboard.templating).match(/latchkey_\w+/g) ?? [];
    expect(chosen).not.toEqual([]);
    expect(chosen.filter((name) => !types.has(name))).toEqual([]);
  });

  it("has panels that do not overlap, with unique ids", () => {
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

  it("names every metric of the service, and no other", () => {
    const named = new Set(reference.match(/\blatchkey_[a-z_]+/g));
    const ours = [...types.keys()].filter((name) => name.startsWith("latchkey_"));
    expect([...named].sort()).toEqual(ours.sort());
  });

  it("names only process metrics that are exported", () => {
    const named = reference.match(/\b(process|nodejs)_[a-z0-9_]+[a-z0-9]\b/g) ?? [];
    expect(named).not.toEqual([]);
    expect(named.filter((name) => !types.has(name))).toEqual([]);
  });

  it.each(["README.md", "docs/operations/deployment.md", "docs/architecture/revocation.md"])(
    "names only exported metrics in %s",
    (path) => {
      const named = readFileSync(path, "utf8").match(/\blatchkey_[a-z_]+/g) ?? [];
      expect(named.filter((name) => !types.has(name))).toEqual([]);
    },
  );
});

/** The metrics and labels of a query, and its syntax errors. */
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

/** The labels in a legend. */
function labelsIn(legend: string): string[] {
  return [...legend.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = ""]) => label);
}
