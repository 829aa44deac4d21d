import { createHash } from "node:crypto";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { type Fields, openUnchecked, type UncheckedClient } from "../../support/clients/unchecked.js";
import type { OperationName } from "../../support/operations.js";
import type { Random } from "../../verification/faults/random.js";
import type { Fixture } from "./scene.js";
import type { SoakedService } from "./service.js";

/** The counters of the load. */
export interface Tally {
  calls: number;
  readonly byProtocol: Map<string, number>;
  readonly byOperation: Map<OperationName, number>;
  aborted: number;
  refused: number;
  /** Calls that were unavailable while a fault was active. */
  unavailable: number;
  /** Unexpected results, with their number. */
  readonly unexpected: Map<string, number>;
}

export interface Load {
  readonly tally: Tally;
  /** While a fault is active, calls may be unavailable. */
  faultActive: boolean;
  stop(): Promise<void>;
}

/** The kinds of clients, which take turns. */
const clientKinds = ["HTTP", "gRPC by connect-node", "Connect"] as const;

/** The number of concurrent clients. */
const concurrency = 12;

/** How often a scenario verifies its key. Most calls of a real service are verifications. */
const verifications = 60;

/**
 * Runs one scenario repeatedly in many concurrent clients. Each creates its own identity and keys, calls every
 * operation with them, and deletes them. Each run uses new connections, over one of the protocols.
 */
export function startLoad(service: SoakedService, fixture: Fixture, random: Random): Load {
  let hasDeletedWorkspace = false;
  const tally: Tally = {
    calls: 0,
    byProtocol: new Map(),
    byOperation: new Map(),
    aborted: 0,
    refused: 0,
    unavailable: 0,
    unexpected: new Map(),
  };
  const load = { tally, faultActive: false, stop };
  let stopped = false;

  /** Makes one call. Returns undefined after an expected error. An unexpected error aborts the scenario. */
  async function call(
    client: UncheckedClient,
    operation: OperationName,
    credential: string,
    request: Fields,
    expected: readonly string[] = [],
    signal?: AbortSignal,
  ): Promise<Record<string, string> | undefined> {
    const outcome = await client.call(operation, credential, request, { ...(signal && { signal }) });
    tally.calls += 1;
    add(tally.byProtocol, client.name);
    add(tally.byOperation, operation);
    if (outcome.kind === "success") return outcome.data as Record<string, string>;
    const result = outcome.kind === "refused" ? outcome.code : outcome.kind;
    if (expected.includes(result)) return undefined;
    if (load.faultActive && /^(service_unavailable|deadline_exceeded)$/.test(result)) tally.unavailable += 1;
    else add(tally.unexpected, `${operation} over ${client.name}: ${JSON.stringify(outcome)}`);
    throw new ScenarioAborted();
  }

  async function runScenario(client: UncheckedClient, spare: string, name: string): Promise<void> {
    const { key, operatorKey, workspaceId } = fixture;
    const callByKey = (operation: OperationName, request: Fields) => call(client, operation, key, request);
    const identityId = (await callByKey("createIdentity", { externalId: name, meta: { plan: "pro" } }))?.["identityId"];
    await callByKey("getIdentity", { externalId: name });
    await callByKey("updateIdentity", { identityId, meta: { plan: "free" } });
    await callByKey("listIdentities", { limit: 5 });
    const apiId = (await callByKey("createApi", { name }))?.["apiId"];
    const roleId = (await callByKey("createRole", { name, permissions: ["documents.read"] }))?.["roleId"];
    await callByKey("createPermission", { name, slug: name });
    const ratelimits = [{ name: "requests", limit: 1_000_000, duration: 60_000, autoApply: true }];
    const created = await callByKey("createKey", { name, externalId: name, apiId, roles: [name], ratelimits });
    await callByKey("getKey", { keyId: created?.["keyId"] });
    await callByKey("listKeys", { externalId: name });
    await callByKey("whoami", { key: created?.["key"] });
    for (let times = 0; times < verifications; times++) await callByKey("verifyKey", { key: created?.["key"] });
    const keyId = created?.["keyId"];
    await callByKey("updateKey", { keyId, name: "renamed", ratelimits: [] });
    await callByKey("updateCredits", { keyId, operation: "set", value: 1_000 });
    for (let times = 0; times < verifications; times++) await callByKey("verifyKey", { key: created?.["key"] });
    await callByKey("updateCredits", { keyId, operation: "set" });
    await callByKey("addPermissions", { keyId, permissions: ["a", "b"] });
    await callByKey("removePermissions", { keyId, permissions: ["a"] });
    await callByKey("setPermissions", { keyId, permissions: [] });
    await callByKey("removeRoles", { keyId, roles: [roleId] });
    await callByKey("addRoles", { keyId, roles: [roleId] });
    await callByKey("setRoles", { keyId, roles: [] });
    await callByKey("getKeyUsage", { keyId });
    await callByKey("getIdentityUsage", { identityId });
    const hash = createHash("sha256").update(`${name} ${workspaceId}`).digest("base64");
    await callByKey("migrateKeys", { migrationId: name, apiId, keys: [{ hash, externalId: name }] });
    await callLimiter(client, name);
    await callByKey("setRolePermissions", { roleId, permissions: ["documents.*"] });
    await callByKey("getRole", { role: roleId });
    await callByKey("listRoles", { limit: 5 });
    await callByKey("getPermission", { permission: name });
    await callByKey("listPermissions", { limit: 5 });
    await callByKey("getApi", { apiId });
    await callByKey("listApis", { limit: 5 });
    const rerolled = await callByKey("rerollKey", { keyId: created?.["keyId"], expiration: 0 });
    await makeRefusedCalls(client, created?.["key"] ?? "");
    await makeAbortedCalls(client, identityId ?? "");
    for (const one of [created, rerolled]) await callByKey("deleteKey", { keyId: one?.["keyId"] });
    await callByKey("deleteApi", { apiId });
    await callByKey("deleteRole", { role: roleId });
    await callByKey("deletePermission", { permission: name });
    await callByKey("deleteIdentity", { identityId });

    const callAsOperator = (operation: OperationName, request: Fields) => call(client, operation, operatorKey, request);
    await callAsOperator("disableWorkspace", { workspaceId: spare, reason: "OWNER_REQUEST" });
    await callAsOperator("getWorkspace", { workspaceId: spare });
    await callAsOperator("enableWorkspace", { workspaceId: spare });
    await callAsOperator("updateWorkspace", { workspaceId: spare, name: `soak ${identityId}` });
    await callAsOperator("listWorkspaces", { limit: 5 });
    const root = await callAsOperator("createRootKey", { workspaceId: spare });
    await call(client, "deleteKey", root?.["key"] ?? "", { keyId: root?.["keyId"] });
    await callAsOperator("listAuditEvents", { workspaceId, limit: 5 });
    // Once, and then rarely, because the row of a deleted workspace stays.
    if (!hasDeletedWorkspace || random.chance(0.02)) {
      hasDeletedWorkspace = true;
      const made = await callAsOperator("createWorkspace", { name: "soak" });
      await callAsOperator("disableWorkspace", { workspaceId: made?.["workspaceId"], reason: "OWNER_REQUEST" });
      await callAsOperator("deleteWorkspace", { workspaceId: made?.["workspaceId"] });
    }
  }

  async function callLimiter(client: UncheckedClient, identifier: string): Promise<void> {
    const callByKey = (operation: OperationName, request: Fields) => call(client, operation, fixture.key, request);
    const override = { namespace: "soak", identifier };
    const use = { ...override, limit: 100, duration: 60_000 };
    for (let times = 0; times < 10; times++) await callByKey("limit", use);
    await callByKey("multiLimit", { limits: [use] });
    await callByKey("setOverride", { ...use, limit: 5 });
    await callByKey("getOverride", override);
    await callByKey("listOverrides", { namespace: override.namespace, limit: 5 });
    await callByKey("limit", use);
    await callByKey("deleteOverride", override);
  }

  async function makeRefusedCalls(client: UncheckedClient, other: string): Promise<void> {
    await call(client, "listKeys", "", {}, ["malformed"]);
    await call(client, "listKeys", "lk_unknown", {}, ["malformed"]);
    await call(client, "listKeys", other, {}, ["key_expired", "insufficient_permissions"]);
    await call(client, "getKey", fixture.key, { keyId: "" }, ["invalid_input"]);
    await call(client, "getIdentity", fixture.key, { externalId: "nobody" }, ["identity_not_found"]);
    tally.refused += 5;
  }

  /** Cancels calls before their response arrives. */
  async function makeAbortedCalls(client: UncheckedClient, identityId: string): Promise<void> {
    for (const operation of ["listAuditEvents", "updateIdentity"] as const) {
      const request = operation === "updateIdentity" ? { identityId, meta: { n: random.between(0, 9) } } : {};
      const cancellation = new AbortController();
      setTimeout(() => cancellation.abort(), random.between(0, 20));
      const result = await call(client, operation, fixture.key, request, ["cancelled"], cancellation.signal);
      if (result === undefined) tally.aborted += 1;
    }
  }

  async function runRepeatedly(index: number): Promise<void> {
    const spare = await fixture.createWorkspace();
    for (let times = 0; !stopped; times++) {
      const kind = clientKinds[(index + times) % clientKinds.length] as (typeof clientKinds)[number];
      const client = openUnchecked(kind, service);
      try {
        await runScenario(client, spare, `scenario_${index}_${times}`);
        await checkReadiness(service.httpUrl);
      } catch (error) {
        if (!(error instanceof ScenarioAborted)) throw error;
        await new Promise((next) => setTimeout(next, 100));
      } finally {
        client.close();
      }
    }
  }

  const running = Promise.all(Array.from({ length: concurrency }, (_, index) => runRepeatedly(index)));
  running.catch(() => {});
  async function stop(): Promise<void> {
    stopped = true;
    await running;
  }
  return load;
}

/** Uses a new connection, as load balancers do. */
async function checkReadiness(httpUrl: string): Promise<void> {
  const sent = get(`${httpUrl}/readyz`, { agent: false });
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  await response.toArray();
}

class ScenarioAborted extends Error {
  override readonly name = "ScenarioAborted";
}

function add<Name>(counts: Map<Name, number>, name: Name): void {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}
