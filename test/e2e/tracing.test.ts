import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, inject, onTestFinished, test } from "vitest";
import { createDatabase } from "../support/harness.js";
import { call, makePlace, start, stop } from "./service.js";

const operatorKey = "operator-credential-of-the-start-tests";
const loaded = new URL("./traced.mjs", import.meta.url).href;

test("an SDK that NODE_OPTIONS loads has the spans of every worker, the last ones included", async () => {
  const database = await createDatabase(inject("template"));
  onTestFinished(() => database.drop());
  const place = makePlace();
  const spansFile = join(place.folder, "spans");
  const service = await start(place, {
    set: {
      WORKERS: "2",
      DATABASE_URL: database.url,
      OPERATOR_KEY: operatorKey,
      NODE_OPTIONS: `--import=${loaded}`,
      SPANS_FILE: spansFile,
    },
  });
  // At once, so that each has a connection of its own, which the next worker gets.
  const calls = Array.from({ length: 4 }, () => call(service, "/v2/workspaces.listWorkspaces", operatorKey));
  expect((await Promise.all(calls)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect((await stop(service)).code).toBe(0);

  const spans = readFileSync(spansFile, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(new Set(spans.map(({ pid }) => pid)).size).toBe(2);
  const names = spans.map(({ name, system }) => `${name} ${system}`).sort();
  const served = "latchkey.v1.WorkspacesService/ListWorkspaces http_json";
  expect(names).toEqual([...Array(4).fill(served), ...Array(4).fill("postgresql postgresql")]);
});
