import { create } from "@bufbuild/protobuf";
import { expect, it } from "vitest";
import { DelegateRequestSchema } from "../../../gen/latchkey/v1/verifier_service_pb.js";
import type { StreamCaller } from "../../../src/call/stream.js";
import { createDelegation } from "../../../src/delegation/delegation.js";
import { ApiError, unexpectedError } from "../../../src/errors.js";
import { createLookupLimit } from "../../../src/revocation/lookup-limit.js";

const databaseTime = () => new Date();

/** A delegation whose lookups never end, and the responses of its streams. */
function openWithoutAnswers() {
  const keyCache = {
    ensureLease: () => {},
    peek: () => undefined,
    get: () => new Promise<never>(() => {}),
    mayHaveImports: () => false,
  };
  const delegation = createDelegation(
    { remaining: () => 100, databaseTime },
    keyCache,
    { record() {} },
    { count() {} },
    createLookupLimit(),
  );
  return (workspaceId: string) => {
    const responses: unknown[] = [];
    const caller: StreamCaller = {
      workspaceId,
      recheck: () => ({ kind: "key", keyId: "key_1", workspaceId, scopes: [], expiresAt: null, hash: "" }),
      admit: () => undefined,
      newCall: () => ({ requestId: "req_1", deadline: Number.POSITIVE_INFINITY }),
      toApiError: unexpectedError,
    };
    const channel = {
      send: ({ message }: { message?: unknown }) => void responses.push(message),
      isCongested: () => false,
      end() {},
    };
    const stream = delegation.serve(channel, caller);
    const resolve = (id: number) =>
      stream.receive(
        create(DelegateRequestSchema, { message: { case: "resolve", value: { id, sha256: new Uint8Array(32) } } }),
      );
    return { stream, resolve, responses };
  };
}

it("a client that opens stream after stream has no more lookups in flight than with one stream", async () => {
  const open = openWithoutAnswers();
  const first = open("ws_1");
  for (let id = 0; id < 1_000; id++) first.resolve(id);
  first.stream.closed();

  const second = open("ws_1");
  second.resolve(1);
  await expect.poll(() => second.responses).toMatchObject([{ value: { id: 1, result: { case: "unresolved" } } }]);

  const other = open("ws_2");
  other.resolve(1);
  await new Promise(setImmediate);
  expect(other.responses).toEqual([]);
});

it("a workspace has at most 1,000 streams to a process; other workspaces can still open some", () => {
  const open = openWithoutAnswers();
  const streams = Array.from({ length: 1_000 }, () => open("ws_1").stream);
  expect(() => open("ws_1")).toThrow(ApiError);
  expect(() => open("ws_1")).toThrow("1000 verifier streams");
  open("ws_2");
  streams[0]?.closed();
  open("ws_1");
  expect(() => open("ws_1")).toThrow(ApiError);
});
