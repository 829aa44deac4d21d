import { expect, test } from "vitest";
import { leftOf, type Process, until } from "./processes.js";
import { call, makePlace, readSecret, type Service, start, stop } from "./service.js";

test("a PostgreSQL that is killed is started again: the service goes on, and every acknowledged write is there", async () => {
  const place = makePlace();
  const service = await start(place);
  const key = readSecret(place.firstKeyFile);
  const acknowledged: string[] = [];

  for (let round = 0; round < 3; round++) {
    const writing = writeUntilRefused(service, key, `round-${round}`, acknowledged);
    await until("some writes are acknowledged", () => acknowledged.length > round * 5 || undefined);
    process.kill(postmasterOf(service).pid, "SIGKILL");
    expect(await writing, "unavailable, and nothing else").toBe(503);
    await until("it serves again", async () => (await status(service, key)) === 200 || undefined);
  }

  for (const externalId of acknowledged) {
    const { data } = await call(service, "/v2/identities.getIdentity", key, { externalId });
    expect(data).toMatchObject({ externalId });
  }
  const said = service.stderr().split("\n");
  expect(said.filter((line) => line.includes("the embedded PostgreSQL has ended"))).toHaveLength(3);
  await until("it says so", () => (service.stderr().match(/PostgreSQL runs again/g) ?? []).length === 3 || undefined);

  const family = service.family();
  expect(await stop(service)).toMatchObject({ code: 0 });
  expect(await leftOf(family, place.folder)).toEqual([]);
});

/** Creates identities one after the other; resolves to the status of the first that is refused. */
async function writeUntilRefused(service: Service, key: string, prefix: string, acknowledged: string[]) {
  for (let number = 0; ; number++) {
    const externalId = `${prefix}-${number}`;
    const { status } = await call(service, "/v2/identities.createIdentity", key, { externalId });
    if (status !== 200) return status;
    acknowledged.push(externalId);
  }
}

async function status(service: Service, key: string): Promise<number> {
  return (await call(service, "/v2/identities.listIdentities", key)).status;
}

function postmasterOf(service: Service): Process {
  const family = service.family();
  const host = family.find(({ command }) => /\/host\.js /.test(command));
  const postmaster = family.find(({ command, parent }) => parent === host?.pid && /\/postgres -D/.test(command));
  if (postmaster === undefined) throw new Error("there is no PostgreSQL");
  return postmaster;
}
