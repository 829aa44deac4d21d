import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { descendantsOf, leftOf, processesIn, until } from "./processes.js";
import {
  call,
  ending,
  expectReadableFailure,
  type Launch,
  launch,
  makePlace,
  type Place,
  readSecret,
  type Service,
  start,
  stop,
  takenPort,
} from "./service.js";

describe("a second start beside a running one", () => {
  test("on the same DATA_DIR fails with a clear sentence, and the first goes on unharmed", async () => {
    const place = makePlace();
    const first = await start(place);
    const key = readSecret(place.firstKeyFile);
    await call(first, "/v2/identities.createIdentity", key, { externalId: "before" });

    const failure = await ending(launch(place));
    expectReadableFailure(failure, "DATA_DIR", place.dataDir, /already runs/);
    expect(failure.stderr.trim().split("\n"), "one line").toHaveLength(1);
    await expectOnlyTheFamilyOf(first, place);

    expect(await call(first, "/v2/identities.createIdentity", key, { externalId: "after" })).toMatchObject({
      status: 200,
    });
    expect(await stop(first)).toMatchObject({ code: 0 });
    const { data } = await call(await start(place), "/v2/identities.listIdentities", key);
    expect(data).toMatchObject([{ externalId: "before" }, { externalId: "after" }]);
  });

  test("on the same HTTP port but with other data fails naming HTTP_PORT, and leaves nothing behind", async () => {
    await expectPortRefused("HTTP_PORT");
  });

  test("on the same gRPC port but with other data fails naming GRPC_PORT, and leaves nothing behind", async () => {
    await expectPortRefused("GRPC_PORT");
  });

  test("of two first starts at once on one empty DATA_DIR, exactly one wins and the other fails clearly", async () => {
    const place = makePlace();
    const launches = [launch(place), launch(place)];
    const failures = await Promise.all(launches.map(failureOf));
    const winners = launches.filter((_, index) => failures[index] === undefined);
    expect(winners).toHaveLength(1);

    for (const failure of failures) if (failure) expectReadableFailure(failure, "DATA_DIR", place.dataDir);
    for (const winner of winners) {
      const service = await winner.ready();
      const key = readSecret(place.firstKeyFile);
      expect(await call(service, "/v1/keys.listKeys", key)).toMatchObject({ status: 200 });
      const operatorKey = readSecret(place.operatorKeyFile);
      expect(await call(service, "/v2/workspaces.listWorkspaces", operatorKey)).toMatchObject({ status: 200 });
      await expectOnlyTheFamilyOf(service, place);
      expect(readdirSync(place.dataDir).sort()).toEqual(["first.key", "operator.key", "postgres", "valkey"]);
    }
  });
});

/** How a launch failed, or undefined once it runs. */
async function failureOf(launched: Launch) {
  const isReady = launched.ready().then(
    () => undefined,
    () => launched.ended,
  );
  return await isReady;
}

async function expectPortRefused(variable: "HTTP_PORT" | "GRPC_PORT"): Promise<void> {
  const place = makePlace();
  const port = await takenPort();
  const launched = launch(place, { set: { [variable]: `${port}` } });
  const family = await until("it starts its backends", () => {
    const family = launched.family();
    return family.some(({ command }) => command.includes("postgres -D")) ? family : undefined;
  });
  const failure = await ending(launched);
  expectReadableFailure(failure, variable, `127.0.0.1:${port}`);
  const lines = failure.stderr.split("\n").filter((line) => line !== "");
  expect(
    lines.filter((line) => !line.startsWith("{")),
    "one sentence for people",
  ).toHaveLength(1);
  // ioredis' words for a connection that we closed ourselves: no outage, and misleading beside the true cause.
  expect(failure.stderr, "no false alarm in the log").not.toContain("Stream isn't writeable");
  expect(await leftOf(family, place.folder)).toEqual([]);
}

/** Nothing of the other start is left: every process in the place belongs to this one. */
async function expectOnlyTheFamilyOf(service: Service, place: Place): Promise<void> {
  await until(
    "only the family is left",
    () => {
      const family = new Set([service.pid, ...descendantsOf(service.pid).map(({ pid }) => pid)]);
      return processesIn(place.folder).every(({ pid }) => family.has(pid)) || undefined;
    },
    10_000,
  );
}
