import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { fromBinary } from "@bufbuild/protobuf";
import { toComparable } from "../../contract/messages.js";
import type { Case } from "./cases.js";
import { encode, type Input } from "./kind.js";
import { type Operation, operationNamed } from "./operations.js";
import { type Accepted, type Outcome, readOutcome, statusOf } from "./outcome.js";
import { differences, readingOf } from "./read-back.js";
import type { PoolName, Request, Resolve } from "./request.js";
import type { Answer, Sender } from "./send.js";
import { type ProtocolName, type Sent, sentTo } from "./sent.js";
import { add, type Tally } from "./tally.js";

/** What is known about a request that was answered, for the search in the database. */
export interface Entry {
  readonly operation: string;
  /** Undefined: whether it took effect is not known. */
  readonly accepted: boolean | undefined;
  readonly told: () => string;
}

/** The requests that were answered, by their ids. */
export type Ledger = Map<string, Entry>;

/** Plays cases, one after the other, in a workspace of its own. */
export interface Lane {
  /** Sends a case, and throws if what comes of it is not as it must be. */
  play(made: Case): Promise<void>;
}

export interface LaneOptions {
  readonly sender: Sender;
  readonly operatorKey: string;
  readonly ledger: Ledger;
  readonly tally: Tally;
}

/** How much there is to refer to, at least and at most. */
const fewest = 3;
const most = 8;

/** How often the same is sent at most. */
export const mostAttempts = 5;

/** How a service answers whose machine is too busy; unless the call has brought a deadline, also that it is too late. */
const unavailable = "application/service_unavailable";
const late = "application/deadline_exceeded";

export async function openLane({ sender, operatorKey, ledger, tally }: LaneOptions): Promise<Lane> {
  const pools = new Map<PoolName, string[]>();
  let homeKey = "";
  const secrets = new Set([operatorKey]);

  const resolve: Resolve = ({ refersTo, index }) => {
    const pool = pools.get(refersTo) ?? [];
    return pool[index % Math.max(1, pool.length)];
  };

  const credentialFor = ({ forKeys }: Operation) => (forKeys ? homeKey : operatorKey);

  function put(pool: PoolName, value: unknown): void {
    if (typeof value !== "string") return;
    const others = (pools.get(pool) ?? []).filter((other) => other !== value);
    pools.set(pool, [...others, value].slice(-most));
  }

  function drop(pool: PoolName, value: unknown): void {
    pools.set(
      pool,
      (pools.get(pool) ?? []).filter((other) => other !== value),
    );
  }

  /**
   * Sends, and once more if the service was not ready or not in time: on a machine that is very busy that can befall
   * whatever is sent. What the input itself brings about comes again.
   */
  async function send(operation: Operation, sent: Sent, told: () => string, isTimed = false, tries = 1) {
    const answer = await sender.send(sent);
    const outcome = readOutcome(operation, answer);
    // What was not answered for may have been made nevertheless, and may be told again.
    note(outcome, operation.name, told, tries === 1);
    const isBusy = !outcome.ok && (outcome.code === unavailable || (!isTimed && outcome.code === late));
    if (!isBusy || tries === mostAttempts) return { answer, outcome };
    tally.triedAgain += 1;
    await sleep(tries * 100);
    return send(operation, sent, told, isTimed, tries + 1);
  }

  /** Makes a request that must succeed. */
  async function succeed(name: string, request: Request, protocol: ProtocolName = "http"): Promise<Accepted> {
    const operation = operationNamed(name);
    const sent = sentTo(protocol, operation, credentialFor(operation), encode(protocol, operation, request));
    const { outcome } = await send(operation, sent, () => `${name} of the lane itself`);
    if (!outcome.ok) throw new Error(`${name} through ${protocol} was refused: ${outcome.code} ${outcome.locations}`);
    learn(name, request, outcome.response);
    return outcome;
  }

  function note(outcome: Outcome, operation: string, told: () => string, isFirst: boolean): void {
    const isKnown = outcome.ok ? isFirst : statusOf(outcome.code) < 500;
    const accepted = isKnown ? outcome.ok : undefined;
    ledger.set(outcome.requestId, { operation, accepted, told });
  }

  /** What can be referred to from now on. */
  function learn(name: string, request: Request, response: Accepted["response"]): void {
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
    const pagination = response["pagination"] as { cursor?: string } | undefined;
    put(`cursor of ${operationNamed(name).rpc.input.typeName}`, pagination?.cursor);
  }

  const size = (pool: PoolName) => pools.get(pool)?.length ?? 0;

  async function topUp(): Promise<void> {
    while (size("keyId") < fewest) await succeed("createKey", { scopes: ["a.b"], permissions: ["a:b"] });
    while (size("identityId") < fewest) await succeed("createIdentity", { externalId: `user ${Math.random()}` });
    while (size("workspaceId") < fewest) await succeed("createWorkspace", { name: "spare" });
  }

  /** What was accepted is read through another protocol, and must be what was meant. */
  async function readBack(
    name: string,
    protocol: ProtocolName,
    meant: Request,
    response: Accepted["response"],
  ): Promise<void> {
    const reading = readingOf(name, meant, response);
    if (reading === undefined) return;
    const read = await succeed(reading.operation, reading.request, protocol === "http" ? "grpc" : "http");
    const resource = read.response[reading.resource] as Record<string, unknown>;
    const different = differences(name, meant, resource);
    if (different.length > 0)
      throw new Error(`it was accepted, but is not read back as it was: ${different.join("; ")}`);
    tally.readBack += 1;
  }

  /** An answer to HEAD is that to GET without its body; a service that was not ready for one of them is bounded elsewhere. */
  async function compareHead(sent: Sent, byGet: Answer): Promise<void> {
    const byHead = await sender.send(sent);
    if (byHead.body.length > 0) throw new Error(`HEAD was answered with a body of ${byHead.body.length} bytes`);
    if ([byHead, byGet].some(({ status }) => status === 503 || status === 504)) tally.triedAgain += 1;
    else if (!isDeepStrictEqual(withoutChance(byHead), withoutChance(byGet))) {
      throw new Error(`HEAD was answered unlike GET: ${JSON.stringify([withoutChance(byHead), withoutChance(byGet)])}`);
    }
  }

  /** What is sent again is answered as it was, and leaves no event: it goes by another name in the ledger. */
  async function repeat(operation: Operation, sent: Sent, told: () => string, first: Accepted): Promise<void> {
    const { outcome } = await send({ ...operation, name: `${operation.name}, repeated` }, sent, told);
    if (!outcome.ok) throw new Error(`it was accepted, and refused with ${outcome.code} when it was repeated`);
    if (!isDeepStrictEqual(outcome.response, first.response)) throw new Error("repeated, it was answered otherwise");
    tally.repeated += 1;
  }

  const home = await succeed("createWorkspace", { name: "home" });
  homeKey = String(home.response["key"]);
  pools.clear();
  put("homeId", home.response["workspaceId"]);

  return {
    async play(made) {
      await topUp();
      const { operation, protocol, kind } = made;
      const input = made.draft({ credential: credentialFor(operation), resolve });
      made.sent = input.sent;
      const { answer, outcome } = await send(operation, input.sent, () => String(made), input.isTimed);
      judge(input, outcome);
      if (!outcome.ok) refuseEcho(answer, secrets);
      if (input.head !== undefined) await compareHead(input.head, answer);

      tally.cases += 1;
      add(tally.byOperation, operation.name);
      add(tally.byProtocol, protocol);
      add(tally.byKind, kind);
      add(tally.byOutcome, outcome.ok ? "accepted" : outcome.code);
      if (!outcome.ok) return;
      tally.accepted += 1;
      add(tally.acceptedByOperation, operation.name);
      const meant = input.meant ?? meantBy(made);
      learn(operation.name, meant ?? {}, outcome.response);
      if (meant !== undefined) await readBack(operation.name, protocol, meant, outcome.response);
      if (input.again !== undefined) await repeat(operation, input.again, () => String(made), outcome);
    },
  };
}

function judge({ form, codes = ["application/invalid_input"], location, isTimed }: Input, outcome: Outcome): void {
  if (form === "unsound") {
    if (outcome.ok) throw new Error("it was accepted");
    if (!codes.includes(outcome.code))
      throw new Error(`it was refused with ${outcome.code}, not with ${codes.join(" or ")}`);
    if (location !== undefined && !outcome.locations.some((each) => each.startsWith(location))) {
      throw new Error(`what is wrong is at ${location}, but ${outcome.locations.join(", ")} was named`);
    }
  }
  if (form === "sound" && !outcome.ok && outcome.code.startsWith("application/")) {
    throw new Error(`there is nothing wrong with it, but it was refused with ${outcome.code} at ${outcome.locations}`);
  }
  if (outcome.ok || (isTimed && outcome.code === "application/deadline_exceeded")) return;
  if (statusOf(outcome.code) >= 500) throw new Error(`the failure is ours: ${outcome.code}`);
}

function refuseEcho({ headers, body }: Answer, secrets: ReadonlySet<string>): void {
  const text = JSON.stringify(headers) + body.toString("latin1");
  const details = Buffer.from(headers["grpc-status-details-bin"] ?? "", "base64").toString("latin1");
  for (const secret of secrets) {
    if (text.includes(secret) || details.includes(secret)) throw new Error("the refusal shows a secret");
  }
}

/** What an answer without a body shares with the same one with it. A refusal names the method, so its length may differ. */
function withoutChance({ status, headers }: Answer): object {
  const { date, "x-request-id": requestId, "content-length": length, ...rest } = headers;
  return { status, ...(status === 200 && { length }), ...rest };
}

/** What bytes mean that are odd in a way that cannot be foreseen; undefined if that is not worth finding out. */
function meantBy({ protocol, operation, sent }: Case): Request | undefined {
  if (sent === undefined || sent.by === "socket" || sent.body.length === 0) return undefined;
  if (protocol === "http")
    return sent.headers.some(([name]) => name === "content-encoding") ? undefined : JSON.parse(sent.body.toString());
  if (protocol === "connect" || sent.headers.some(([, value]) => value === "gzip")) return undefined;
  const bytes = protocol === "connect-proto" ? sent.body : sent.body.subarray(5, 5 + sent.body.readUInt32BE(1));
  const { input } = operation.rpc;
  const { updateMask, ...meant } = toComparable(input, fromBinary(input, bytes));
  // A list without items is as good as none.
  return updateMask === undefined
    ? Object.fromEntries(Object.entries(meant).filter(([, given]) => !isEmpty(given)))
    : undefined;
}

function isEmpty(given: unknown): boolean {
  return Array.isArray(given) && given.length === 0;
}
