import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { fromBinary } from "@bufbuild/protobuf";
import { toComparable } from "../../support/clients/messages.js";
import type { RawClient } from "../../support/clients/raw-client.js";
import { type ProtocolName, type RawRequest, toRawRequest } from "../../support/clients/raw-request.js";
import type { RawResponse } from "../../support/clients/sockets.js";
import type { Case } from "./cases.js";
import { encode, type Input } from "./kind.js";
import { type Operation, operationNamed } from "./operations.js";
import { type Accepted, type Outcome, readOutcome, statusOf } from "./outcome.js";
import { differences, readingOf } from "./read-back.js";
import type { PoolName, Request, Resolve } from "./request.js";
import { add, type Tally } from "./tally.js";

/** What is known about an answered request. It is compared with the database afterwards. */
export interface Entry {
  readonly operation: string;
  /** Undefined: unknown whether the request took effect. */
  readonly accepted: boolean | undefined;
  readonly describe: () => string;
}

/** The answered requests by request id. */
export type Ledger = Map<string, Entry>;

/** Runs cases, one after the other, in its own workspace. */
export interface Worker {
  /** Sends a case, and throws if the result is not as expected. */
  run(testCase: Case): Promise<void>;
}

export interface WorkerOptions {
  readonly client: RawClient;
  readonly operatorKey: string;
  readonly ledger: Ledger;
  readonly tally: Tally;
}

/** Minimum and maximum of values in a pool of references. */
const minPoolSize = 3;
const maxPoolSize = 8;

/** Maximum attempts for one request. */
export const maxAttempts = 5;

/** Errors of a service on an overloaded machine. The second only counts if the call has no deadline of its own. */
const unavailable = "application/service_unavailable";
const deadlineExceeded = "application/deadline_exceeded";

export async function openWorker({ client, operatorKey, ledger, tally }: WorkerOptions): Promise<Worker> {
  const pools = new Map<PoolName, string[]>();
  let workspaceKey = "";
  const secrets = new Set([operatorKey]);

  const resolve: Resolve = ({ refersTo, index }) => {
    const pool = pools.get(refersTo) ?? [];
    return pool[index % Math.max(1, pool.length)];
  };

  const credentialFor = ({ forKeys }: Operation) => (forKeys ? workspaceKey : operatorKey);

  function put(pool: PoolName, value: unknown): void {
    if (typeof value !== "string") return;
    const others = (pools.get(pool) ?? []).filter((other) => other !== value);
    pools.set(pool, [...others, value].slice(-maxPoolSize));
  }

  function drop(pool: PoolName, value: unknown): void {
    pools.set(
      pool,
      (pools.get(pool) ?? []).filter((other) => other !== value),
    );
  }

  /**
   * Sends a request, and retries if the service was unavailable or too slow. On a very busy machine this can happen to
   * any request. An error that the input itself causes occurs again.
   */
  async function send(operation: Operation, raw: RawRequest, describe: () => string, isTimed = false, attempt = 1) {
    const response = await client.send(raw);
    const outcome = readOutcome(operation, response);
    // After a 5xx the change may have been made nevertheless, and a retry may return its recorded response.
    record(outcome, operation.name, describe, attempt === 1);
    const isRetryable =
      !outcome.ok && (outcome.code === unavailable || (!isTimed && outcome.code === deadlineExceeded));
    if (!isRetryable || attempt === maxAttempts) return { response, outcome };
    tally.triedAgain += 1;
    await sleep(attempt * 100);
    return send(operation, raw, describe, isTimed, attempt + 1);
  }

  /** Sends a request that must succeed. */
  async function succeed(name: string, request: Request, protocol: ProtocolName = "http"): Promise<Accepted> {
    const operation = operationNamed(name);
    const raw = toRawRequest(protocol, operation, credentialFor(operation), encode(protocol, operation, request));
    const { outcome } = await send(operation, raw, () => `${name} by the worker itself`);
    if (!outcome.ok) throw new Error(`${name} over ${protocol} was refused: ${outcome.code} ${outcome.locations}`);
    updatePools(name, request, outcome.response);
    return outcome;
  }

  function record(outcome: Outcome, operation: string, describe: () => string, isFirst: boolean): void {
    const isKnown = outcome.ok ? isFirst : statusOf(outcome.code) < 500;
    const accepted = isKnown ? outcome.ok : undefined;
    ledger.set(outcome.requestId, { operation, accepted, describe });
  }

  /** Adds and removes values that later requests can refer to. */
  function updatePools(name: string, request: Request, response: Accepted["response"]): void {
    if (typeof response["key"] === "string") secrets.add(response["key"]);
    if (name === "deleteKey") drop("keyId", request["keyId"]);
    if (name === "deleteIdentity") for (const pool of ["identityId", "externalId"] as const) pools.set(pool, []);
    if (name === "createKey" || name === "rerollKey") {
      put("keyId", response["keyId"]);
      put("secret", response["key"]);
    }
    if (name === "createIdentity") {
      put("identityId", response["identityId"]);
      put("externalId", request["externalId"]);
    }
    if (name === "createWorkspace") put("workspaceId", response["workspaceId"]);
    if (name === "deleteWorkspace") drop("workspaceId", request["workspaceId"]);
    if (name === "createApi") put("apiId", response["apiId"]);
    if (name === "deleteApi") drop("apiId", request["apiId"]);
    if (name === "createRole") put("role", request["name"]);
    if (name === "deleteRole") drop("role", request["role"]);
    if (name === "createPermission") put("slug", request["slug"]);
    if (name === "deletePermission") drop("slug", request["permission"]);
    const pagination = response["pagination"] as { cursor?: string } | undefined;
    put(`cursor of ${operationNamed(name).rpc.input.typeName}`, pagination?.cursor);
  }

  const size = (pool: PoolName) => pools.get(pool)?.length ?? 0;

  async function fillPools(): Promise<void> {
    while (size("keyId") < minPoolSize) await succeed("createKey", { scopes: ["a.b"], permissions: ["a:b"] });
    while (size("identityId") < minPoolSize) await succeed("createIdentity", { externalId: `user ${Math.random()}` });
    while (size("workspaceId") < minPoolSize) await succeed("createWorkspace", { name: "spare" });
    while (size("apiId") < minPoolSize) await succeed("createApi", { name: "spare" });
    while (size("role") < minPoolSize) await succeed("createRole", { name: `role ${Math.random()}` });
    while (size("slug") < minPoolSize) await succeed("createPermission", { name: "a", slug: `a${Math.random()}` });
  }

  /** Reads an accepted change over another protocol. The values must be the intended ones. */
  async function readBack(
    name: string,
    protocol: ProtocolName,
    intended: Request,
    response: Accepted["response"],
  ): Promise<void> {
    const reading = readingOf(name, intended, response);
    if (reading === undefined) return;
    const read = await succeed(reading.operation, reading.request, protocol === "http" ? "grpc" : "http");
    const resource = read.response[reading.resource] as Record<string, unknown>;
    const different = differences(name, intended, resource);
    if (different.length > 0)
      throw new Error(`it was accepted, but the values read back differ: ${different.join("; ")}`);
    tally.readBack += 1;
  }

  /**
   * A response to HEAD equals the response to GET without its body. If the service was unavailable for one of them,
   * only a retry is counted; the number of retries is limited elsewhere.
   */
  async function compareHead(raw: RawRequest, getResponse: RawResponse): Promise<void> {
    const headResponse = await client.send(raw);
    if (headResponse.body.length > 0)
      throw new Error(`the response to HEAD has a body of ${headResponse.body.length} bytes`);
    if ([headResponse, getResponse].some(({ status }) => status === 503 || status === 504)) tally.triedAgain += 1;
    else if (!isDeepStrictEqual(stablePartsOf(headResponse), stablePartsOf(getResponse))) {
      throw new Error(
        `HEAD and GET differ: ${JSON.stringify([stablePartsOf(headResponse), stablePartsOf(getResponse)])}`,
      );
    }
  }

  /** A retry returns the first response and adds no audit event, so the ledger has it under another name. */
  async function retry(operation: Operation, raw: RawRequest, describe: () => string, first: Accepted): Promise<void> {
    const { outcome } = await send({ ...operation, name: `${operation.name}, repeated` }, raw, describe);
    if (!outcome.ok) throw new Error(`it was accepted, and its retry was refused with ${outcome.code}`);
    if (!isDeepStrictEqual(outcome.response, first.response)) throw new Error("the retry returned another response");
    tally.repeated += 1;
  }

  const workspace = await succeed("createWorkspace", { name: "home" });
  workspaceKey = String(workspace.response["key"]);
  pools.clear();
  put("homeId", workspace.response["workspaceId"]);

  return {
    async run(testCase) {
      await fillPools();
      const { operation, protocol, kind } = testCase;
      const input = testCase.draft({ credential: credentialFor(operation), resolve });
      testCase.raw = input.raw;
      const { response, outcome } = await send(operation, input.raw, () => String(testCase), input.isTimed);
      checkOutcome(operation, input, outcome);
      if (!outcome.ok) checkNoSecret(response, secrets);
      if (input.headRequest !== undefined) await compareHead(input.headRequest, response);

      tally.cases += 1;
      add(tally.byOperation, operation.name);
      add(tally.byProtocol, protocol);
      add(tally.byKind, kind);
      add(tally.byOutcome, outcome.ok ? "accepted" : outcome.code);
      if (!outcome.ok) return;
      tally.accepted += 1;
      add(tally.acceptedByOperation, operation.name);
      const intended = input.intended ?? decodeIntended(testCase);
      updatePools(operation.name, intended ?? {}, outcome.response);
      if (intended !== undefined) await readBack(operation.name, protocol, intended, outcome.response);
      if (input.retry !== undefined) await retry(operation, input.retry, () => String(testCase), outcome);
    },
  };
}

/** Rules about the state of a resource, by operation and location: a key with 100 permissions or 20 roles gets no further one. */
const stateRules = new Set(["addPermissions permissions", "addRoles roles"]);

function checkOutcome(
  { name }: Operation,
  { form, codes = ["application/invalid_input"], location, isTimed }: Input,
  outcome: Outcome,
): void {
  if (form === "invalid") {
    if (outcome.ok) throw new Error("it was accepted");
    if (!codes.includes(outcome.code))
      throw new Error(`it was refused with ${outcome.code}, not with ${codes.join(" or ")}`);
    if (location !== undefined && !outcome.locations.some((each) => each.startsWith(location))) {
      throw new Error(`the error is at ${location}, but the response names ${outcome.locations.join(", ")}`);
    }
  }
  const isByState = !outcome.ok && outcome.locations.some((location) => stateRules.has(`${name} ${location}`));
  if (form === "valid" && !outcome.ok && outcome.code.startsWith("application/") && !isByState) {
    throw new Error(`the input is valid, but it was refused with ${outcome.code} at ${outcome.locations}`);
  }
  if (outcome.ok || (isTimed && outcome.code === "application/deadline_exceeded")) return;
  if (statusOf(outcome.code) >= 500) throw new Error(`it is a server error: ${outcome.code}`);
}

function checkNoSecret({ headers, body }: RawResponse, secrets: ReadonlySet<string>): void {
  const text = JSON.stringify(headers) + body.toString("latin1");
  const details = Buffer.from(headers["grpc-status-details-bin"] ?? "", "base64").toString("latin1");
  for (const secret of secrets) {
    if (text.includes(secret) || details.includes(secret)) throw new Error("the error response contains a secret");
  }
}

/** The parts that responses to HEAD and GET share. An error names the method, so its length may differ. */
function stablePartsOf({ status, headers }: RawResponse): object {
  const { date, "x-request-id": requestId, "content-length": length, ...rest } = headers;
  return { status, ...(status === 200 && { length }), ...rest };
}

/** Decodes the intended values from unpredictably corrupted bytes. Undefined where decoding is not worth the effort. */
function decodeIntended({ protocol, operation, raw }: Case): Request | undefined {
  if (raw === undefined || raw.by === "socket" || raw.body.length === 0) return undefined;
  if (protocol === "http")
    return raw.headers.some(([name]) => name === "content-encoding") ? undefined : JSON.parse(raw.body.toString());
  if (protocol === "connect" || raw.headers.some(([, value]) => value === "gzip")) return undefined;
  const bytes = protocol === "connect-proto" ? raw.body : raw.body.subarray(5, 5 + raw.body.readUInt32BE(1));
  const { input } = operation.rpc;
  const { updateMask, ...intended } = toComparable(input, fromBinary(input, bytes));
  // In protobuf, an empty list equals an absent one.
  return updateMask === undefined
    ? Object.fromEntries(Object.entries(intended).filter(([, given]) => !isEmpty(given)))
    : undefined;
}

function isEmpty(given: unknown): boolean {
  return Array.isArray(given) && given.length === 0;
}
