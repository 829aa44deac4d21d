import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import type { AppOptions } from "../../../src/app.js";
import { openProtocols, type ProtocolClients } from "../../support/clients/all.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import type { CallRequest } from "../../support/clients/protocol-client.js";
import { redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import type { OperationName } from "../../support/operations.js";
import type { ResponseData } from "../../support/responses.js";

/** Two services on one database and one Redis, and a workspace. */
export interface TwoReplicas {
  readonly apps: readonly [TestApp, TestApp];
  readonly key: string;
  readonly workspaceId: string;
  /** Calls a replica over gRPC, or over HTTP; the call must succeed. */
  call<Name extends OperationName>(
    replica: 0 | 1,
    name: Name,
    request: CallRequest,
    protocol?: "grpc" | "http",
  ): Promise<ResponseData[Name]>;
  /** Verifies a key on a replica. */
  verify(replica: 0 | 1, secret: string, request?: CallRequest): Promise<ResponseData["verifyKey"]>;
  close(): Promise<void>;
}

/** A window that does not end within a test. */
export const tenMinutes = 600_000;

const unavailable = "application/service_unavailable";
const maxAttempts = 50;

/** Opens both. The second may have other options, such as another way to Redis. */
export async function openTwoReplicas(
  options: Partial<AppOptions> = {},
  ofSecond: Partial<AppOptions> = {},
): Promise<TwoReplicas> {
  const first = await openTestApp({ metricsPort: 0, ...options });
  const { databaseUrl } = first;
  const second = await openTestApp({ metricsPort: 0, ...options, databaseUrl, ...ofSecond });
  const apps = [first, second] as const;
  await redisInUse(first);
  if (!("redis" in ofSecond) || ofSecond.redis !== undefined) await redisInUse(second);
  const clients = apps.map(openProtocols) as [ProtocolClients, ProtocolClients];
  const { key, workspaceId } = await createWorkspace(first.httpUrl);

  const call: TwoReplicas["call"] = async (replica, name, request, protocol = "grpc") => {
    const attempt = () => clients[replica][protocol].call(name, key, request);
    let outcome = await attempt();
    // On a busy machine, a process may lose its lease. A verification is then refused before it is counted.
    for (let times = 0; !outcome.ok && outcome.code === unavailable && times < maxAttempts; times++) {
      await sleep(100);
      outcome = await attempt();
    }
    if (!outcome.ok) expect.fail(`${name} was refused: ${outcome.code}: ${outcome.detail}`);
    return outcome.data as ResponseData[typeof name];
  };

  return {
    apps,
    key,
    workspaceId,
    call,
    verify: (replica, secret, request = {}) => call(replica, "verifyKey", { key: secret, ...request }),
    async close() {
      for (const each of clients) each.close();
      await second.close();
      await first.close(); // drops the database
    },
  };
}
