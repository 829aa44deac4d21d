import { inspect } from "node:util";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from "vitest";
import { DisabledReason } from "../../../gen/latchkey/v1/workspace_pb.js";
import {
  createLatchkeyClient,
  isLatchkeyError,
  type LatchkeyClient,
  type LatchkeyError,
  type LatchkeyErrorCode,
  type LatchkeyErrorType,
} from "../../../src/client/client.js";
import { ApiError, errorCodes, pathOf } from "../../../src/errors.js";
import { toConnectError } from "../../../src/rpc/status.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";

let app: TestApp;
beforeAll(async () => {
  app = await openTestApp();
});
afterAll(() => app.close());

/** Every way to the service that a client may take. */
const ways: Record<string, (key: string) => LatchkeyClient> = {
  "Connect, by the address": (key) => createLatchkeyClient({ url: app.httpUrl, key }),
  "Connect, in binary": (key) => by(key, createConnectTransport({ baseUrl: app.httpUrl, useBinaryFormat: true })),
  "gRPC-Web": (key) => by(key, createGrpcWebTransport({ baseUrl: app.httpUrl })),
  gRPC: (key) => by(key, createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` })),
};

function by(key: string, transport: Transport): LatchkeyClient {
  return createLatchkeyClient({ key, transport });
}

/** What a call that must fail was refused with. */
async function refusal(call: Promise<unknown>): Promise<unknown> {
  return call.then(
    () => expect.fail("the call succeeded"),
    (error: unknown) => error,
  );
}

describe.each(Object.entries(ways))("a client over %s", (_, connect) => {
  it("makes keys and verifies them", async () => {
    const { key: root } = await connect(operatorKey).workspaces.createWorkspace({ name: "Acme" });
    const { keys, identities } = connect(root);
    const { identityId } = await identities.createIdentity({ externalId: "user_1", meta: { plan: "pro" } });
    const { key, keyId } = await keys.createKey({ owner: { case: "identityId", value: identityId } });
    const verdict = await keys.verifyKey({ key });
    expect(verdict).toMatchObject({ valid: true, keyId, identity: { identityId, meta: { plan: "pro" } } });
  });

  it("is told by its code that the workspace is disabled", async () => {
    const operator = connect(operatorKey);
    const { key, workspaceId } = await operator.workspaces.createWorkspace({ name: "Acme" });
    await operator.workspaces.disableWorkspace({ workspaceId, reason: DisabledReason.UNPAID_BILLING });
    const error = await refusal(connect(key).keys.listKeys({}));
    if (!isLatchkeyError(error, "workspace_disabled")) return expect.fail(inspect(error));
    expect(error).toMatchObject({
      name: "LatchkeyError",
      message: "The workspace tied to this API key is disabled.",
      code: "workspace_disabled",
      type: "authorization/workspace_disabled",
      status: Code.PermissionDenied,
      requestId: expect.stringMatching(/^req_\w{26}$/),
      fieldErrors: [],
    });
    expect(isLatchkeyError(error, "key_disabled")).toBe(false);
    expect(inspect(error, { depth: Number.POSITIVE_INFINITY, showHidden: true })).not.toContain(key);
  });

  it("makes a key once, however often it asks with the same Idempotency-Key", async () => {
    const { key: root } = await connect(operatorKey).workspaces.createWorkspace({ name: "Acme" });
    const { keys } = connect(root);
    const headers = { "Idempotency-Key": crypto.randomUUID() };
    const first = await keys.createKey({ name: "ci" }, { headers });
    expect(await keys.createKey({ name: "ci" }, { headers })).toEqual(first);
    const error = await refusal(keys.createKey({ name: "other" }, { headers }));
    expect(isLatchkeyError(error, "idempotency_conflict")).toBe(true);
    const unsendable = { headers: { "idempotency-key": "clé" } };
    await expect(keys.createKey({}, unsendable)).rejects.toThrow("Idempotency-Key must be printable ASCII");
  });

  it("is told which fields to mend", async () => {
    const { key } = await connect(operatorKey).workspaces.createWorkspace({ name: "Acme" });
    const error = await refusal(connect(key).keys.createKey({ prefix: "not a prefix" }));
    if (!isLatchkeyError(error, "invalid_input")) return expect.fail(inspect(error));
    expect(error.fieldErrors).toMatchObject([{ location: "prefix", message: expect.stringContaining("letters") }]);
  });

  it("can tell an unknown credential from an unknown key", async () => {
    const { key } = await connect(operatorKey).workspaces.createWorkspace({ name: "Acme" });
    const { keys } = connect(key);
    const { key: deleted, keyId } = await keys.createKey({});
    await keys.deleteKey({ keyId });
    const about = await refusal(keys.getKey({ keyId }));
    const by = await refusal(connect(deleted).keys.listKeys({}));
    expect(isLatchkeyError(about, "key_not_found") && isLatchkeyError(by, "key_not_found")).toBe(true);
    expect(isLatchkeyError(about, "data/key_not_found")).toBe(true);
    expect(isLatchkeyError(by, "data/key_not_found")).toBe(false);
    expect(isLatchkeyError(by, "authentication/key_not_found")).toBe(true);
  });
});

describe("the errors of a client", () => {
  const failing = (error: unknown) => {
    const fail = () => Promise.reject(error);
    return createLatchkeyClient({ key: "lk_any", transport: { unary: fail, stream: fail } });
  };

  it.each(errorCodes.map((code) => [pathOf(code), code] as const))("tell %s by its name", async (path, code) => {
    const sent = toConnectError(new ApiError(code, "What happened."), "req_1");
    const error = await refusal(failing(sent).keys.listKeys({}));
    expect(isLatchkeyError(error, path as LatchkeyErrorType)).toBe(true);
    expect(isLatchkeyError(error, path.split("/")[1] as LatchkeyErrorCode)).toBe(true);
  });

  it("have the catalogue's names as their types", () => {
    const isGone = (error: unknown) => isLatchkeyError(error, "data/key_not_found") && error;
    expectTypeOf(isGone).returns.toEqualTypeOf<false | LatchkeyError<"key_not_found">>();
    // @ts-expect-error no row of the catalogue has this name
    expect(isLatchkeyError(new Error(), "no_such_code")).toBe(false);
  });

  it("are Connect's own where the service has not answered", async () => {
    const { keys } = createLatchkeyClient({ url: "http://127.0.0.1:1", key: "lk_any" });
    const away = await refusal(keys.listKeys({}));
    expect(away).toBeInstanceOf(ConnectError);
    expect(away).toMatchObject({ code: Code.Unavailable, rawMessage: expect.stringContaining("cannot be reached") });
    expect(isLatchkeyError(away)).toBe(false);
    const aborted = await refusal(keys.listKeys({}, { signal: AbortSignal.abort() }));
    expect(aborted).toMatchObject({ code: Code.Canceled });
  });

  it("do not name a key that cannot be sent", () => {
    for (const key of ["", "lk_secret\n", "lk_se cret", "lk_secrét"]) {
      const create = () => createLatchkeyClient({ url: app.httpUrl, key });
      expect(create).toThrow(TypeError);
      expect(create).not.toThrow(/lk_/);
    }
  });
});
