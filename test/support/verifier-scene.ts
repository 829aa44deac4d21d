import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { expect, inject, onTestFinished, vi } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import {
  type DelegateRequest,
  DelegateRequestSchema,
  type DelegateResponse,
  VerifierService,
} from "../../gen/latchkey/v1/verifier_service_pb.js";
import type { AppOptions } from "../../src/app.js";
import { toLatchkeyError } from "../../src/client/protobuf-error.js";
import { createQueue } from "../../src/verifier/queue.js";
import { openVerifier, type Verifier, type VerifierOptions, type VerifyResult } from "../../src/verifier/verifier.js";
import { succeed } from "./calls.js";
import { createWorkspace } from "./clients/http-requests.js";
import { createDatabase, openTestApp, type TestApp } from "./harness.js";

export interface CreatedKey {
  readonly keyId: string;
  readonly key: string;
}

export type Scene = Awaited<ReturnType<typeof openScene>>;

/**
 * Long, so that a busy machine does not lose its lease and its grants all the time. Tests of what holds without a grant
 * take it away on purpose.
 */
const leaseMs = 500;

/** Replicas on one database, a workspace with all scopes, and a key with the scope `keys.verify`. */
export async function openScene(replicas = 1, overrides: Partial<AppOptions> = {}) {
  const database = await createDatabase(inject("template"));
  const sql = openSql(database.url, { max: 1, onnotice: () => {} });
  await sql`update cluster_state set lease_ms = ${leaseMs}, wait_ms = ${leaseMs}`;
  const apps: TestApp[] = [];
  const open = async (more: Partial<AppOptions> = {}) => {
    const app = await openTestApp({ databaseUrl: database.url, metricsPort: 0, ...overrides, ...more });
    apps.push(app);
    return app;
  };
  while (apps.length < replicas) await open();
  const app = apps[0] as TestApp;
  const lastApp = apps.at(-1) as TestApp;
  const { workspaceId, key: rootKey } = await vi.waitFor(() => createWorkspace(app.httpUrl), { timeout: 10_000 });
  /** Calls the last replica, whose changes the first one must learn of. */
  const call = <T = unknown>(operation: string, body: object, credential = rootKey) =>
    succeed<T>(lastApp.httpUrl, operation, credential, body);
  const createKey = (body: object = {}) => call<CreatedKey>("keys.createKey", body);
  const caller = await createKey({ scopes: ["keys.verify"] });
  return {
    app,
    apps,
    sql,
    workspaceId,
    rootKey,
    caller,
    call,
    createKey,
    /** Opens another replica. */
    open,
    async close() {
      for (const each of apps) await each.close(); // one that a test has closed stays closed
      await sql.end({ timeout: 1 });
      await database.drop();
    },
  };
}

/** Opens a verifier at the first replica, until the end of the test. */
export async function openTestVerifier(scene: Scene, options: Partial<VerifierOptions> = {}): Promise<Verifier> {
  const verifier = await openVerifier({
    address: `http://${scene.app.grpcAddress}`,
    key: scene.caller.key,
    openTimeoutMs: 20_000,
    ...options,
  });
  onTestFinished(() => verifier.close());
  return verifier;
}

/** Verifies again and again until the result comes at once, without a promise. */
export async function verifyLocally(verifier: Verifier, secret: string, permissions?: string): Promise<VerifyResult> {
  return vi.waitFor(
    async () => {
      const options = permissions === undefined ? {} : { permissions };
      const result = verifier.verify(secret, options);
      if (!(result instanceof Promise)) return result;
      await result;
      return expect.fail("the key is not verified locally");
    },
    { timeout: 15_000, interval: 5 },
  );
}

/** A stream to a service, without the library. */
export function openStream(address: string, key: string) {
  const requests = createQueue<DelegateRequest>();
  const received: DelegateResponse["message"][] = [];
  const aborter = new AbortController();
  const transport = createGrpcTransport({
    baseUrl: `http://${address}`,
    interceptors: [
      (next) => (request) => {
        request.header.set("authorization", `Bearer ${key}`);
        return next(request);
      },
    ],
  });
  /** Resolves with the error, or undefined if the service ended the stream with OK. */
  const ended = (async () => {
    const responses = createClient(VerifierService, transport).delegate(requests, { signal: aborter.signal });
    for await (const { message } of responses) received.push(message);
  })().then(
    () => undefined,
    (error) => toLatchkeyError(error) ?? error,
  );
  onTestFinished(() => aborter.abort());
  return {
    received,
    ended,
    send: (message: MessageInitShape<typeof DelegateRequestSchema>["message"] & object) =>
      requests.push(create(DelegateRequestSchema, { message })),
    end: requests.end,
    abort: () => aborter.abort(),
    /** Waits for the first message of a kind that matches. */
    async next<Case extends Message["case"] & string>(
      kind: Case,
      matches: (value: Value<Case>) => boolean = () => true,
    ): Promise<Value<Case>> {
      const find = () =>
        received.flatMap((message) => (message.case === kind ? [message.value as Value<Case>] : [])).find(matches);
      await expect.poll(find, { timeout: 10_000, interval: 5 }).toBeDefined();
      return find() as Value<Case>;
    },
  };
}

type Message = DelegateResponse["message"];
type Value<Case> = Extract<Message, { case: Case }>["value"];
