import { inspect } from "node:util";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { describe, expect, expectTypeOf, it } from "vitest";
import { VerificationCode } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { DisabledReason } from "../../../gen/latchkey/v1/workspace_pb.js";
import {
  createProtobufClient,
  isLatchkeyError,
  type LatchkeyError,
  type LatchkeyErrorCode,
  type LatchkeyErrorType,
  type ProtobufClient,
} from "../../../src/client/protobuf.js";
import { ApiError, errorCodes, grpcStatusOf, pathOf } from "../../../src/errors.js";
import { detailsOf } from "../../../src/rpc/status.js";
import { openFileApp } from "../../support/file-service.js";
import { operatorKey } from "../../support/harness.js";

const app = await openFileApp();

/** Every transport of a client. */
const transports: Record<string, (key: string) => ProtobufClient> = {
  "Connect, by URL": (key) => createProtobufClient({ url: app.httpUrl, key }),
  "Connect, in binary": (key) =>
    clientOver(key, createConnectTransport({ baseUrl: app.httpUrl, useBinaryFormat: true })),
  "gRPC-Web": (key) => clientOver(key, createGrpcWebTransport({ baseUrl: app.httpUrl })),
  gRPC: (key) => clientOver(key, createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` })),
};

function clientOver(key: string, transport: Transport): ProtobufClient {
  return createProtobufClient({ key, transport });
}

/** The error of a call that must fail. */
async function errorOf(call: Promise<unknown>): Promise<unknown> {
  return call.then(
    () => expect.fail("the call succeeded"),
    (error: unknown) => error,
  );
}

describe.each(Object.entries(transports))("a client over %s", (_, connect) => {
  it("creates keys and verifies them", async () => {
    const { key: root } = await connect(operatorKey).workspaces.createWorkspace({ name: "Acme" });
    const { keys, identities } = connect(root);
    const { identityId } = await identities.createIdentity({ externalId: "user_1", meta: { plan: "pro" } });
    const { key, keyId } = await keys.createKey({ owner: { case: "identityId", value: identityId } });
    const result = await keys.verifyKey({ key });
    expect(result).toMatchObject({ valid: true, keyId, identity: { identityId, meta: { plan: "pro" } } });
  });

  it("limits keys and identifiers, spends credits, and manages APIs and roles", async () => {
    const { key: root } = await connect(operatorKey).workspaces.createWorkspace({ name: "Acme" });
    const { keys, apis, permissions, rateLimits, identities } = connect(root);
    const { apiId } = await apis.createApi({ name: "payments" });
    await permissions.createRole({ name: "editor", permissions: ["documents.read"] });
    const perMinute = { limit: 10n, duration: 60_000n };
    const { key, keyId } = await keys.createKey({
      owner: { case: "externalId", value: "user_1" },
      apiId,
      roles: ["editor"],
      ratelimits: [{ name: "requests", ...perMinute, autoApply: true }],
      credits: { remaining: 5n, refill: { interval: "daily", amount: 5n } },
    });
    const result = await keys.verifyKey({ key, permissions: "documents.read", credits: { cost: 2n } });
    expect(result).toMatchObject({ code: VerificationCode.VALID, credits: 3n, roles: ["editor"] });
    expect(result.ratelimits).toMatchObject([{ name: "requests", remaining: 9n, exceeded: false }]);
    const { credits } = await keys.updateCredits({ keyId, operation: "increment", value: 4n });
    expect(credits).toMatchObject({ remaining: 7n });
    const ofUser = { namespace: "email.send", identifier: "user_1" };
    expect(await rateLimits.limit({ ...ofUser, ...perMinute })).toMatchObject({ success: true, remaining: 9n });
    const limits = [{ ...ofUser, ...perMinute, cost: 10n }];
    expect(await rateLimits.multiLimit({ limits })).toMatchObject({ passed: false, limits: [{ remaining: 9n }] });
    const ofIdentity = { reference: { case: "externalId" as const, value: "user_1" } };
    const countVerifications = async () =>
      (await identities.getIdentityUsage(ofIdentity)).usage.map((hour) => hour.valid);
    await expect.poll(countVerifications, { timeout: 10_000 }).toEqual([1n]);
    const error = await errorOf(apis.getApi({ apiId: "api_none" }));
    expect(isLatchkeyError(error, "api_not_found")).toBe(true);
    await apis.deleteApi({ apiId });
    expect(await keys.verifyKey({ key })).toMatchObject({ code: VerificationCode.NOT_FOUND });
  });

  it("gets the error code workspace_disabled for a disabled workspace", async () => {
    const operator = connect(operatorKey);
    const { key, workspaceId } = await operator.workspaces.createWorkspace({ name: "Acme" });
    await operator.workspaces.disableWorkspace({ workspaceId, reason: DisabledReason.UNPAID_BILLING });
    const error = await errorOf(connect(key).keys.listKeys({}));
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

  it("creates one key for any number of retries with the same Idempotency-Key", async () => {
    const { key: root } = await connect(operatorKey).workspaces.createWorkspace({ name: "Acme" });
    const { keys } = connect(root);
    const headers = { "Idempotency-Key": crypto.randomUUID() };
    const first = await keys.createKey({ name: "ci" }, { headers });
    expect(await keys.createKey({ name: "ci" }, { headers })).toEqual(first);
    const error = await errorOf(keys.createKey({ name: "other" }, { headers }));
    expect(isLatchkeyError(error, "idempotency_conflict")).toBe(true);
    const unsendable = { headers: { "idempotency-key": "clé" } };
    await expect(keys.createKey({}, unsendable)).rejects.toThrow("Idempotency-Key must be printable ASCII");
  });

  it("gets the invalid fields of an error", async () => {
    const { key } = await connect(operatorKey).workspaces.createWorkspace({ name: "Acme" });
    const error = await errorOf(connect(key).keys.createKey({ prefix: "not a prefix" }));
    if (!isLatchkeyError(error, "invalid_input")) return expect.fail(inspect(error));
    expect(error.fieldErrors).toMatchObject([{ location: "prefix", message: expect.stringContaining("letters") }]);
  });

  it("distinguishes an unknown credential from an unknown key", async () => {
    const { key } = await connect(operatorKey).workspaces.createWorkspace({ name: "Acme" });
    const { keys } = connect(key);
    const { key: deleted, keyId } = await keys.createKey({});
    await keys.deleteKey({ keyId });
    const dataError = await errorOf(keys.getKey({ keyId }));
    const authenticationError = await errorOf(connect(deleted).keys.listKeys({}));
    expect(isLatchkeyError(dataError, "key_not_found") && isLatchkeyError(authenticationError, "key_not_found")).toBe(
      true,
    );
    expect(isLatchkeyError(dataError, "data/key_not_found")).toBe(true);
    expect(isLatchkeyError(authenticationError, "data/key_not_found")).toBe(false);
    expect(isLatchkeyError(authenticationError, "authentication/key_not_found")).toBe(true);
  });
});

describe("the errors of a client", () => {
  const failing = (error: unknown) => {
    const fail = () => Promise.reject(error);
    return createProtobufClient({ key: "lk_any", transport: { unary: fail, stream: fail } });
  };

  it.each(errorCodes.map((code) => [pathOf(code), code] as const))("identify %s by its name", async (path, code) => {
    const apiError = new ApiError(code, "What happened.");
    const sent = new ConnectError(apiError.detail, grpcStatusOf(code), undefined, detailsOf(apiError, "req_1"));
    const error = await errorOf(failing(sent).keys.listKeys({}));
    expect(isLatchkeyError(error, path as LatchkeyErrorType)).toBe(true);
    expect(isLatchkeyError(error, path.split("/")[1] as LatchkeyErrorCode)).toBe(true);
  });

  it("have the catalogue's names as their types", () => {
    const isGone = (error: unknown) => isLatchkeyError(error, "data/key_not_found") && error;
    expectTypeOf(isGone).returns.toEqualTypeOf<false | LatchkeyError<"key_not_found">>();
    // @ts-expect-error the catalogue has no such code
    expect(isLatchkeyError(new Error(), "no_such_code")).toBe(false);
  });

  it("are Connect's own if the service did not respond", async () => {
    const { keys } = createProtobufClient({ url: "http://127.0.0.1:1", key: "lk_any" });
    const unreachable = await errorOf(keys.listKeys({}));
    expect(unreachable).toBeInstanceOf(ConnectError);
    expect(unreachable).toMatchObject({
      code: Code.Unavailable,
      rawMessage: expect.stringContaining("cannot be reached"),
    });
    expect(isLatchkeyError(unreachable)).toBe(false);
    const aborted = await errorOf(keys.listKeys({}, { signal: AbortSignal.abort() }));
    expect(aborted).toMatchObject({ code: Code.Canceled });
  });

  it("do not contain an invalid key", () => {
    for (const key of ["", "lk_secret\n", "lk_se cret", "lk_secrét"]) {
      const create = () => createProtobufClient({ url: app.httpUrl, key });
      expect(create).toThrow(TypeError);
      expect(create).not.toThrow(/lk_/);
    }
  });
});
