import { expect, test } from "vitest";
import { callUnaryOnce } from "../support/clients/grpc-js.js";
import { headersOf } from "../support/clients/headers.js";
import { call, makeSandbox, readSecret, start, stop } from "./service.js";

test("the log of successful and failed calls contains no credential, in whole or in part", async () => {
  const sandbox = makeSandbox();
  const service = await start(sandbox, { set: { LOG_LEVEL: "trace" } });
  const operatorKey = readSecret(sandbox.operatorKeyFile);
  const firstKey = readSecret(sandbox.firstKeyFile);
  const workspace = await call(service, "/v2/workspaces.createWorkspace", operatorKey, { name: "another" });
  const created = await call(service, "/v2/keys.createKey", firstKey, { name: "created", scopes: ["keys.read"] });
  const keys = [workspace, created].map(({ data }) => (data as { key: string }).key);
  const [otherKey = "", createdKey = ""] = keys;

  // Every kind of error that involves a credential.
  const responses = await Promise.all([
    call(service, "/v2/identities.createIdentity", createdKey, { externalId: "not permitted" }),
    call(service, "/v2/workspaces.listWorkspaces", firstKey),
    call(service, "/v1/keys.listKeys", operatorKey),
    call(service, "/v1/keys.listKeys", `${firstKey}x`),
    call(service, `/v1/keys.listKeys?key=${firstKey}`, otherKey),
    call(service, `/no/such/path?key=${firstKey}`, firstKey),
    call(service, "/v2/identities.createIdentity", firstKey, {
      externalId: `${firstKey}\u0000`,
      [createdKey]: firstKey,
    }),
    call(service, "/v2/identities.getIdentity", firstKey, { externalId: createdKey }),
  ]);
  expect(responses.filter(({ status }) => status < 400).length, "nearly all of these fail").toBeLessThan(2);
  await expect(overGrpc(service.grpcAddress, operatorKey)).rejects.toThrow();
  await overGrpc(service.grpcAddress, firstKey);

  const { stderr } = await stop(service);
  expect(stderr.trim().split("\n").length, "every call is logged").toBeGreaterThanOrEqual(responses.length + 4);
  for (const secret of [operatorKey, firstKey, ...keys]) {
    expect(secret.length).toBeGreaterThan(24);
    expect(stderr).not.toContain(secret);
    expect(stderr, "nor most of it").not.toContain(secret.slice(0, 20));
  }
  for (const secret of [operatorKey, firstKey]) expect(service.stdout()).not.toContain(secret);
});

async function overGrpc(address: string, credential: string): Promise<void> {
  const deadline = Date.now() + 15_000;
  const headers = headersOf(credential);
  const { error } = await callUnaryOnce(address, "/latchkey.v1.KeysService/ListKeys", headers, undefined, { deadline });
  if (error) throw error;
}
