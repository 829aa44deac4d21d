import { expect } from "vitest";
import type { CallerCredential, CallRequest, HeaderLines, ProtocolClient } from "../support/clients/protocol-client.js";
import { operatorKey } from "../support/harness.js";
import type { Answers, PaginationAnswer } from "./answers.js";
import type { OperationName } from "./operations.js";
import type { Outcome, Refusal } from "./outcome.js";

/** The clock of the service's database, which tests can move. */
export interface Clock {
  now(): number;
  advance(ms: number): Promise<void>;
}

/** The stage of one case at one protocol: fresh workspaces, and a record of everything that was answered. */
export interface Scene {
  readonly protocol: ProtocolClient;
  readonly clock: Clock;
  /** A fresh workspace, with its first key. */
  readonly home: Answers["createWorkspace"];
  /** What every call was answered, in order. */
  readonly transcript: readonly { operation: OperationName; outcome: Outcome }[];
  /** Calls the operation, whatever comes of it. */
  call(
    operation: OperationName,
    credential: CallerCredential,
    request?: CallRequest,
    headers?: HeaderLines,
  ): Promise<Outcome>;
  /** Calls an operation that must succeed; gives its data. */
  ok<Name extends OperationName>(
    operation: Name,
    credential: CallerCredential,
    request?: CallRequest,
    headers?: HeaderLines,
  ): Promise<Answers[Name]>;
  /** Calls a list that must succeed; gives its page. */
  page<Name extends OperationName>(
    operation: Name,
    credential: CallerCredential,
    request?: CallRequest,
    headers?: HeaderLines,
  ): Promise<{ data: Answers[Name]; pagination: PaginationAnswer | undefined }>;
  /** Calls an operation that must be refused with exactly this code. */
  refused(
    code: string,
    operation: OperationName,
    credential: CallerCredential,
    request?: CallRequest,
    headers?: HeaderLines,
  ): Promise<Refusal>;
  /** Another workspace. */
  newWorkspace(): Promise<Answers["createWorkspace"]>;
  /** A key that holds every scope and has been expired since a moment ago. */
  newExpiredKey(request?: CallRequest): Promise<string>;
}

/** Sets the stage: makes a workspace through the protocol itself. */
export async function openScene(protocol: ProtocolClient, clock: Clock): Promise<Scene> {
  const transcript: { operation: OperationName; outcome: Outcome }[] = [];

  const call: Scene["call"] = async (operation, credential, request = {}, headers = []) => {
    const outcome = await protocol.call(operation, credential, request, headers);
    transcript.push({ operation, outcome });
    return outcome;
  };

  const page: Scene["page"] = async (operation, ...rest) => {
    const outcome = await call(operation, ...rest);
    if (!outcome.ok) expect.fail(`${operation} was refused: ${outcome.code}: ${outcome.detail}`);
    return { data: outcome.data as Answers[typeof operation], pagination: outcome.pagination };
  };

  const ok: Scene["ok"] = async (...given) => (await page(...given)).data;

  const newWorkspace = () => ok("createWorkspace", operatorKey, { name: "acme" });
  const home = await newWorkspace();

  return {
    protocol,
    clock,
    home,
    transcript,
    call,
    ok,
    page,
    newWorkspace,
    async refused(code, operation, ...rest) {
      const outcome = await call(operation, ...rest);
      if (outcome.ok) expect.fail(`${operation} was answered, not refused with ${code}`);
      expect(outcome.code, `${operation}: ${outcome.detail}`).toBe(code);
      return outcome;
    },
    async newExpiredKey(request) {
      const lifetime = 60_000;
      const expires = clock.now() + lifetime;
      const { key } = await ok("createKey", home.key, { scopes: ["*"], ...request, expires });
      await clock.advance(lifetime);
      return key;
    },
  };
}
