import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import type { OperationName } from "../../contract/operations.js";
import type { Random } from "../../verification/faults/random.js";
import { openConnect, openGrpc, openHttp, type ProtocolClient } from "./protocol-clients.js";
import type { Scene } from "./scene.js";
import type { SoakedService } from "./service.js";

/** What the load has done so far. */
export interface Tally {
  calls: number;
  readonly byProtocol: Map<string, number>;
  readonly byOperation: Map<OperationName, number>;
  aborted: number;
  refused: number;
  /** Unavailable, while a fault was on. */
  unavailable: number;
  /** Answers that should not have been given, and how often they were. */
  readonly unexpected: Map<string, number>;
}

export interface Load {
  readonly tally: Tally;
  /** While a fault is on, calls may be unavailable. */
  faultOn: boolean;
  stop(): Promise<void>;
}

/** How many tell the story at a time. */
const tellers = 12;

/** How often a story verifies its key; most of the calls of a real service are of this kind. */
const verifications = 60;

/**
 * Tells one story over and over, in many voices: each makes its own identity and keys, does with them all that can be
 * done, and deletes them. Every telling comes over connections of its own, through one of the protocols.
 */
export function startLoad(service: SoakedService, scene: Scene, random: Random): Load {
  const tally: Tally = {
    calls: 0,
    byProtocol: new Map(),
    byOperation: new Map(),
    aborted: 0,
    refused: 0,
    unavailable: 0,
    unexpected: new Map(),
  };
  const load = { tally, faultOn: false, stop };
  let stopped = false;
  const openings = [
    () => openHttp(service.httpUrl),
    () => openGrpc(service.grpcUrl),
    () => openConnect(service.httpUrl),
  ];

  /** Makes one call. Undefined: it did not succeed, as was expected; what was not expected ends the story. */
  async function call(
    protocol: ProtocolClient,
    operation: OperationName,
    credential: string,
    request: object,
    expected: readonly string[] = [],
    signal?: AbortSignal,
  ): Promise<Record<string, string> | undefined> {
    const answer = await protocol.call(operation, credential, request, signal);
    tally.calls += 1;
    add(tally.byProtocol, protocol.name);
    add(tally.byOperation, operation);
    if ("fields" in answer) return answer.fields as Record<string, string>;
    if (expected.includes(answer.failed)) return undefined;
    if (load.faultOn && /^(Unavailable|DeadlineExceeded)$/.test(answer.failed)) tally.unavailable += 1;
    else add(tally.unexpected, `${operation} by ${protocol.name}: ${answer.failed} (${answer.detail})`);
    throw new StoryCut();
  }

  async function tell(protocol: ProtocolClient, spare: string, number: string): Promise<void> {
    const { key, operatorKey, workspaceId } = scene;
    const ask = (operation: OperationName, request: object) => call(protocol, operation, key, request);
    const identityId = (await ask("createIdentity", { externalId: number, meta: { plan: "pro" } }))?.["identityId"];
    await ask("getIdentity", { externalId: number });
    await ask("updateIdentity", { identityId, meta: { plan: "free" } });
    await ask("listIdentities", { limit: 5 });
    const made = await ask("createKey", { name: number, externalId: number, permissions: ["documents.read"] });
    await ask("getKey", { keyId: made?.["keyId"] });
    await ask("listKeys", { externalId: number });
    await ask("whoami", { key: made?.["key"] });
    for (let times = 0; times < verifications; times++) await ask("verifyKey", { key: made?.["key"] });
    await ask("updateKey", { keyId: made?.["keyId"], name: "renamed" });
    const rerolled = await ask("rerollKey", { keyId: made?.["keyId"], expiration: 0 });
    await refuse(protocol, made?.["key"] ?? "");
    await abort(protocol, identityId ?? "");
    for (const one of [made, rerolled]) await ask("deleteKey", { keyId: one?.["keyId"] });
    await ask("deleteIdentity", { identityId });

    const operate = (operation: OperationName, request: object) => call(protocol, operation, operatorKey, request);
    await operate("disableWorkspace", { workspaceId: spare, reason: "OWNER_REQUEST" });
    await operate("getWorkspace", { workspaceId: spare });
    await operate("enableWorkspace", { workspaceId: spare });
    await operate("listWorkspaces", { limit: 5 });
    const root = await operate("createRootKey", { workspaceId: spare });
    await call(protocol, "deleteKey", root?.["key"] ?? "", { keyId: root?.["keyId"] });
    await operate("listAuditEvents", { workspaceId, limit: 5 });
    // A workspace cannot be deleted.
    if (random.chance(0.02)) await operate("createWorkspace", { name: "soak" });
  }

  async function refuse(protocol: ProtocolClient, other: string): Promise<void> {
    await call(protocol, "listKeys", "", {}, ["Unauthenticated"]);
    await call(protocol, "listKeys", "lk_unknown", {}, ["Unauthenticated"]);
    await call(protocol, "listKeys", other, {}, ["Unauthenticated", "PermissionDenied"]);
    await call(protocol, "getKey", scene.key, { keyId: "" }, ["InvalidArgument"]);
    await call(protocol, "getIdentity", scene.key, { externalId: "nobody" }, ["NotFound"]);
    tally.refused += 5;
  }

  /** Goes away before the answer is there, now and then. */
  async function abort(protocol: ProtocolClient, identityId: string): Promise<void> {
    for (const operation of ["listAuditEvents", "updateIdentity"] as const) {
      const request = operation === "updateIdentity" ? { identityId, meta: { n: random.between(0, 9) } } : {};
      const gone = new AbortController();
      setTimeout(() => gone.abort(), random.between(0, 20));
      const answer = await call(protocol, operation, scene.key, request, ["Canceled"], gone.signal);
      if (answer === undefined) tally.aborted += 1;
    }
  }

  async function tellOnAndOn(voice: number): Promise<void> {
    const spare = await scene.makeWorkspace();
    for (let times = 0; !stopped; times++) {
      const protocol = openings[(voice + times) % openings.length]?.() as ProtocolClient;
      try {
        await tell(protocol, spare, `story_${voice}_${times}`);
        await askWhetherReady(service.httpUrl);
      } catch (error) {
        if (!(error instanceof StoryCut)) throw error;
        await new Promise((next) => setTimeout(next, 100));
      } finally {
        protocol.close();
      }
    }
  }

  const telling = Promise.all(Array.from({ length: tellers }, (_, voice) => tellOnAndOn(voice)));
  telling.catch(() => {});
  async function stop(): Promise<void> {
    stopped = true;
    await telling;
  }
  return load;
}

/** On a connection for this alone, as load balancers do. */
async function askWhetherReady(httpUrl: string): Promise<void> {
  const sent = get(`${httpUrl}/readyz`, { agent: false });
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  await response.toArray();
}

class StoryCut extends Error {
  override readonly name = "StoryCut";
}

function add<Name>(counts: Map<Name, number>, name: Name): void {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}
