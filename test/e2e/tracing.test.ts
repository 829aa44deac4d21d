import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, inject, onTestFinished, test } from "vitest";
import { createDatabase } from "../support/harness.js";
import { call, makeSandbox, start, stop } from "./service.js";

const operatorKey = "operator-credential-of-the-start-tests";
const sdkModule = new URL("./traced.mjs", import.meta.url).href;

test("tracing: an SDK loaded by NODE_OPTIONS gets the spans of every worker, including the last ones", async () => {
  const database = await createDatabase(inject("template"));
  onTestFinished(() => database.drop());
  const sandbox = makeSandbox();
  const spansFile = join(sandbox.folder, "spans");
  const service = await start(sandbox, {
    set: {
      WORKERS: "2",
      DATABASE_URL: database.url,
      OPERATOR_KEY: operatorKey,
      NODE_OPTIONS: `--import=${sdkModule}`,
      SPANS_FILE: spansFile,
    },
  });
  // Concurrently, so that each has its own connection, and the workers get them in turn.
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
