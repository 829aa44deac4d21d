import { status } from "@grpc/grpc-js";
import { expect, vi } from "vitest";
import type { TestApp } from "../harness.js";
import { operatorKey } from "../harness.js";
import { callUnaryOnce } from "./grpc-js.js";
import { headersOf } from "./headers.js";
import { expectSuccess, type HttpResponse, post, send } from "./http-requests.js";

/** Waits until the service uses its Redis. */
export async function redisInUse(app: TestApp): Promise<void> {
  const inUse = async () => {
    const readiness = expectSuccess(await send(app.httpUrl, "/readyz", { method: "GET" }));
    expect(readiness).toMatchObject({ redis: "in use" });
  };
  await vi.waitFor(inUse, { timeout: 10_000 });
}

/** Lists keys over HTTP: a call that any enabled key of an enabled workspace may make. */
export function listKeys(app: TestApp, key: string): Promise<HttpResponse> {
  return post(app.httpUrl, "/v1/keys.listKeys", key, {});
}

/** The same call over gRPC. Returns the name of its status. */
export async function listKeysGrpc(app: TestApp, key: string): Promise<string> {
  const { error } = await callUnaryOnce(app.grpcAddress, "/latchkey.v1.KeysService/ListKeys", headersOf(key));
  return status[error?.code ?? status.OK] ?? "";
}

/** Disables a workspace, and waits for the response. */
export async function disable(app: TestApp, workspaceId: string): Promise<void> {
  const body = { workspaceId, reason: "UNPAID_BILLING" };
  expectSuccess(await post(app.httpUrl, "/v2/workspaces.disableWorkspace", operatorKey, body));
}

/** Enables a workspace, and waits for the response. */
export async function enable(app: TestApp, workspaceId: string): Promise<void> {
  expectSuccess(await post(app.httpUrl, "/v2/workspaces.enableWorkspace", operatorKey, { workspaceId }));
}
