import { expect } from "vitest";
import type { CallerCredential, HeaderLines } from "../support/clients/headers.js";
import type { Outcome, Refusal } from "../support/clients/outcome.js";
import type { CallRequest, ProtocolClient } from "../support/clients/protocol-client.js";
import { operatorKey } from "../support/harness.js";
import type { OperationName } from "../support/operations.js";
import type { PaginationResponse, ResponseData } from "../support/responses.js";

/** The clock of the service's database, which tests can advance. */
export interface Clock {
  now(): number;
  advance(ms: number): Promise<void>;
}

/** The environment of one test case on one protocol: new workspaces, and a transcript of all responses. */
export interface Scene {
  readonly protocol: ProtocolClient;
  readonly clock: Clock;
  /** A new workspace, with its first key. */
  readonly home: ResponseData["createWorkspace"];
  /** The outcome of every call, in order. */
  readonly transcript: readonly { operation: OperationName; outcome: Outcome }[];
  /** Calls the operation; any outcome is accepted. */
  call(
    operation: OperationName,
    credential: CallerCredential,
    request?: CallRequest,
    headers?: HeaderLines,
  ): Promise<Outcome>;
  /** Calls an operation that must succeed; returns its data. */
  ok<Name extends OperationName>(
    operation: Name,
    credential: CallerCredential,
    request?: CallRequest,
    headers?: HeaderLines,
  ): Promise<ResponseData[Name]>;
  /** Calls a list that must succeed; returns its page. */
  page<Name extends OperationName>(
    operation: Name,
    credential: CallerCredential,
    request?: CallRequest,
    headers?: HeaderLines,
  ): Promise<{ data: ResponseData[Name]; pagination: PaginationResponse | undefined }>;
  /** Calls an operation that must be refused with exactly this code. */
  refused(
    code: string,
    operation: OperationName,
    credential: CallerCredential,
    request?: CallRequest,
    headers?: HeaderLines,
  ): Promise<Refusal>;
  /** Another workspace. */
  newWorkspace(): Promise<ResponseData["createWorkspace"]>;
  /** A key with every scope that has just expired. */
  newExpiredKey(request?: CallRequest): Promise<string>;
}

/** Opens a scene, and creates its workspace over the protocol itself. */
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
    return { data: outcome.data as ResponseData[typeof operation], pagination: outcome.pagination };
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
      if (outcome.ok) expect.fail(`${operation} succeeded, and was not refused with ${code}`);
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
