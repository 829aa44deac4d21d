import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { descendantsOf, processesIn, remainingProcesses, until } from "./processes.js";
import {
  call,
  expectUserError,
  type Launch,
  launch,
  makeSandbox,
  readSecret,
  type Sandbox,
  type Service,
  start,
  stop,
  usedPort,
  waitForExit,
} from "./service.js";

describe("a second start while the first service runs", () => {
  test("on the same DATA_DIR fails with a clear error, and the first service continues", async () => {
    const sandbox = makeSandbox();
    const first = await start(sandbox);
    const key = readSecret(sandbox.firstKeyFile);
    await call(first, "/v2/identities.createIdentity", key, { externalId: "before" });

    const failure = await waitForExit(launch(sandbox));
    expectUserError(failure, "DATA_DIR", sandbox.dataDir, /already runs/);
    expect(failure.stderr.trim().split("\n"), "one line").toHaveLength(1);
    await expectOnlyProcessesOf(first, sandbox);

    expect(await call(first, "/v2/identities.createIdentity", key, { externalId: "after" })).toMatchObject({
      status: 200,
    });
    expect(await stop(first)).toMatchObject({ code: 0 });
    const { data } = await call(await start(sandbox), "/v2/identities.listIdentities", key);
    expect(data).toMatchObject([{ externalId: "before" }, { externalId: "after" }]);
  });

  test("on the same HTTP port but with other data fails naming HTTP_PORT, and leaves nothing behind", async () => {
    await expectPortRefused("HTTP_PORT");
  });

  test("on the same gRPC port but with other data fails naming GRPC_PORT, and leaves nothing behind", async () => {
    await expectPortRefused("GRPC_PORT");
  });

  test("of two concurrent first starts on one empty DATA_DIR, exactly one succeeds and the other fails with a clear error", async () => {
    const sandbox = makeSandbox();
    const launches = [launch(sandbox), launch(sandbox)];
    const failures = await Promise.all(launches.map(failureOf));
    const winners = launches.filter((_, index) => failures[index] === undefined);
    expect(winners).toHaveLength(1);

    for (const failure of failures) if (failure) expectUserError(failure, "DATA_DIR", sandbox.dataDir);
    for (const winner of winners) {
      const service = await winner.ready();
      const key = readSecret(sandbox.firstKeyFile);
      expect(await call(service, "/v1/keys.listKeys", key)).toMatchObject({ status: 200 });
      const operatorKey = readSecret(sandbox.operatorKeyFile);
      expect(await call(service, "/v2/workspaces.listWorkspaces", operatorKey)).toMatchObject({ status: 200 });
      await expectOnlyProcessesOf(service, sandbox);
      expect(readdirSync(sandbox.dataDir).sort()).toEqual(["first.key", "operator.key", "postgres", "valkey"]);
    }
  });
});

/** The failure of a launch; undefined once it runs. */
async function failureOf(launched: Launch) {
  const isReady = launched.ready().then(
    () => undefined,
    () => launched.ended,
  );
  return await isReady;
}

async function expectPortRefused(variable: "HTTP_PORT" | "GRPC_PORT"): Promise<void> {
  const sandbox = makeSandbox();
  const port = await usedPort();
  const launched = launch(sandbox, { set: { [variable]: `${port}` } });
  const descendants = await until("the backends are starting", () => {
    const descendants = launched.descendants();
    return descendants.some(({ command }) => command.includes("postgres -D")) ? descendants : undefined;
  });
  const failure = await waitForExit(launched);
  expectUserError(failure, variable, `127.0.0.1:${port}`);
  const lines = failure.stderr.split("\n").filter((line) => line !== "");
  expect(
    lines.filter((line) => !line.startsWith("{")),
    "one sentence for people",
  ).toHaveLength(1);
  // ioredis' message for a connection that the service closed itself. It is no outage, and hides the true cause.
  expect(failure.stderr, "no false alarm in the log").not.toContain("Stream isn't writeable");
  expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
}

/** No process of the other start remains: every process in the sandbox belongs to this one. */
async function expectOnlyProcessesOf(service: Service, sandbox: Sandbox): Promise<void> {
  await until(
    "only processes of this service remain",
    () => {
      const descendants = new Set([service.pid, ...descendantsOf(service.pid).map(({ pid }) => pid)]);
      return processesIn(sandbox.folder).every(({ pid }) => descendants.has(pid)) || undefined;
    },
    10_000,
  );
}
