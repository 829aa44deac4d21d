import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import type { Backend, Run } from "../../../src/embedded/backend.js";
import { nonDurable, openPostgres } from "../../../src/embedded/postgres.js";
import { type BackendEvent, supervise } from "../../../src/embedded/supervisor.js";

test("a stop does not wait for a backend that takes long to be started again", async () => {
  const killed = new AbortController();
  const first: Run = { ended: once(killed.signal, "abort").then(() => "killed"), stop: async () => {} };
  let starts = 0;
  const backend: Backend = {
    name: "backend",
    url: "",
    async start(unwanted) {
      if (starts++ === 0) return first;
      await new Promise<void>((resolve) => unwanted?.addEventListener("abort", () => resolve()));
      throw new Error("aborted");
    },
    discard: () => {},
  };
  const told: BackendEvent["kind"][] = [];
  const unwanted = new AbortController();
  const kept = await supervise(backend, ({ kind }) => told.push(kind), unwanted.signal);
  killed.abort();
  await expect.poll(() => starts).toBe(2);
  unwanted.abort();
  await kept.stop();
  expect(starts).toBe(2);
  expect(told).toEqual(["lost"]);
});

test("a PostgreSQL that is not wanted any more before it answers is ended, and can be started later", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "latchkey-unwanted-"));
  const backend = await openPostgres(dataDir, nonDurable);
  onTestFinished(() => {
    backend.discard();
    rmSync(dataDir, { recursive: true, force: true });
  });
  const unwanted = new AbortController();
  const starting = backend.start(unwanted.signal);
  unwanted.abort();
  await expect(starting).rejects.toThrow();
  await expect(backend.start(unwanted.signal)).rejects.toThrow("aborted");

  const run = await backend.start(new AbortController().signal);
  onTestFinished(() => run.stop());
  const sql = openSql(backend.url, { max: 1 });
  expect(await sql`select 1 as one`).toEqual([{ one: 1 }]);
  await sql.end();
});
