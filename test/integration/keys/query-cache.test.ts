import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it, onTestFinished } from "vitest";
import { parsePermissionQuery } from "../../../src/keys/permission-query.js";
import { createWorkspace, post } from "../../support/clients/http-requests.js";
import { openTestApp } from "../../support/harness.js";

/** As long as a query can be, and of as many names; each another. */
const queries = Array.from({ length: 1_000 }, (_, index) => `n${`${index}`.padStart(3, "0")}${" OR a".repeat(199)}`);

it("a thousand different permission queries of the greatest length hold a fraction of what they are parsed to", async () => {
  const app = await openTestApp();
  onTestFinished(() => app.close());
  const { key } = await createWorkspace(app.httpUrl);
  const verify = async (permissions: string): Promise<void> => {
    const { status } = await post(app.httpUrl, "/v2/keys.verifyKey", key, { key, permissions });
    if (status !== 200) await verify(permissions); // on a machine that is very busy
  };
  for (let call = 0; call < 200; call++) await verify("a"); // so that all is compiled, and connections are open

  const before = heldBytes();
  for (const query of queries) await verify(query);
  const byService = heldBytes() - before;
  const parsed = queries.map(parsePermissionQuery);
  const byAll = heldBytes() - before - byService;
  expect(parsed).toHaveLength(queries.length);
  expect(byService / byAll).toBeLessThan(0.25);
});

function heldBytes(): number {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  for (let pass = 0; pass < 3; pass++) collect();
  return process.memoryUsage().heapUsed;
}
