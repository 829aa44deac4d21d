import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it, onTestFinished } from "vitest";
import { parsePermissionQuery } from "../../../src/keys/permission-query.js";
import { createWorkspace, post } from "../../support/clients/http-requests.js";
import { openTestApp } from "../../support/harness.js";

/** Different queries of the maximum length and with the maximum number of names. */
const queries = Array.from({ length: 1_000 }, (_, index) => `n${`${index}`.padStart(3, "0")}${" OR a".repeat(199)}`);

it("the permission query cache is bounded: 1,000 long queries take a fraction of their parsed size", async () => {
  const app = await openTestApp();
  onTestFinished(() => app.close());
  const { key } = await createWorkspace(app.httpUrl);
  const verify = async (permissions: string): Promise<void> => {
    const { status } = await post(app.httpUrl, "/v2/keys.verifyKey", key, { key, permissions });
    if (status !== 200) await verify(permissions); // retry: a very busy machine sheds calls
  };
  for (let call = 0; call < 200; call++) await verify("a"); // warm-up: compiled code and open connections

  const before = heapBytes();
  for (const query of queries) await verify(query);
  const serviceBytes = heapBytes() - before;
  const parsed = queries.map(parsePermissionQuery);
  const parsedBytes = heapBytes() - before - serviceBytes;
  expect(parsed).toHaveLength(queries.length);
  expect(serviceBytes / parsedBytes).toBeLessThan(0.25);
});

function heapBytes(): number {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  for (let pass = 0; pass < 3; pass++) collect();
  return process.memoryUsage().heapUsed;
}
