import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import type { Backend, Run } from "../../../src/embedded/backend.js";
import { nonDurable, openPostgres } from "../../../src/embedded/postgres.js";
import { type BackendEvent, supervise } from "../../../src/embedded/supervisor.js";

test("shutdown does not wait for a slow restart of a backend", async () => {
  const killed = new AbortController();
  const first: Run = { ended: once(killed.signal, "abort").then(() => "killed"), stop: async () => {} };
  let starts = 0;
  const backend: Backend = {
    name: "backend",
    url: "",
    async start(abortSignal) {
      if (starts++ === 0) return first;
      await new Promise<void>((resolve) => abortSignal?.addEventListener("abort", () => resolve()));
      throw new Error("aborted");
    },
    discard: () => {},
  };
  const events: BackendEvent["kind"][] = [];
  const abort = new AbortController();
  const supervised = await supervise(backend, ({ kind }) => events.push(kind), abort.signal);
  killed.abort();
  await expect.poll(() => starts).toBe(2);
  abort.abort();
  await supervised.stop();
  expect(starts).toBe(2);
  expect(events).toEqual(["lost"]);
});

test("an aborted start ends PostgreSQL, and it can be started later", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "latchkey-aborted-"));
  const backend = await openPostgres(dataDir, nonDurable);
  onTestFinished(() => {
    backend.discard();
    rmSync(dataDir, { recursive: true, force: true });
  });
  const abort = new AbortController();
  const starting = backend.start(abort.signal);
  abort.abort();
  await expect(starting).rejects.toThrow();
  await expect(backend.start(abort.signal)).rejects.toThrow("aborted");

  const run = await backend.start(new AbortController().signal);
  onTestFinished(() => run.stop());
  const sql = openSql(backend.url, { max: 1 });
  expect(await sql`select 1 as one`).toEqual([{ one: 1 }]);
  await sql.end();
});
