import { expect } from "vitest";
import { openProtocols } from "./clients/all.js";
import type { CallRequest, ProtocolClient } from "./clients/protocol-client.js";
import { openTestApp, type TestApp } from "./harness.js";
import { readLookups } from "./metrics.js";
import type { OperationName } from "./operations.js";
import type { ResponseData } from "./responses.js";

/** Several services on one database. */
export interface Replicas {
  readonly apps: readonly TestApp[];
  /** A gRPC and an HTTP client of each. */
  readonly protocols: readonly ProtocolClient[];
  /** Makes a change, over another replica and another protocol each time. */
  change<Name extends OperationName>(name: Name, credential: string, request: CallRequest): Promise<ResponseData[Name]>;
  /** Calls every replica over both protocols concurrently. Each call must succeed. */
  callAll<Name extends OperationName>(
    name: Name,
    credential: string,
    request: CallRequest,
  ): Promise<ResponseData[Name][]>;
  /** The outcomes of calls with this key, over every protocol of every replica. */
  outcomes(key: string): Promise<string[]>;
  /** Checks that every replica verifies this key from its memory cache. */
  expectCached(key: string): Promise<void>;
  close(): Promise<void>;
}

/** Opens this many services; without a URL, on a new database. */
export async function openReplicas(count: number, databaseUrl?: string): Promise<Replicas> {
  const apps: TestApp[] = [];
  for (let url = databaseUrl; apps.length < count; url = apps[0]?.databaseUrl) {
    apps.push(await openTestApp({ metricsPort: 0, ...(url !== undefined && { databaseUrl: url }) }));
  }
  const opened = apps.map(openProtocols);
  const protocols = opened.flatMap(({ grpc, http }): ProtocolClient[] => [grpc, http]);
  let changes = 0;

  const outcomes = (key: string) =>
    Promise.all(
      protocols.map(async (protocol) => {
        const outcome = await protocol.call("listKeys", key, {});
        return outcome.ok ? "ok" : outcome.code;
      }),
    );
  const countLookups = () => Promise.all(apps.map((app) => readLookups(app, "key")));

  return {
    apps,
    protocols,
    change: (...call) => succeed(protocols[changes++ % protocols.length] as ProtocolClient, ...call),
    callAll: (...call) => Promise.all(protocols.map((protocol) => succeed(protocol, ...call))),
    outcomes,
    async expectCached(key) {
      await outcomes(key);
      const before = await countLookups();
      await outcomes(key);
      for (const [index, { memory, ...elsewhere }] of (await countLookups()).entries()) {
        const { memory: memoryBefore = Number.NaN, ...elsewhereBefore } = before[index] ?? {};
        expect(elsewhere).toEqual(elsewhereBefore);
        expect(memory).toBe(memoryBefore + 2);
      }
    },
    async close() {
      for (const each of opened) each.close();
      // Closing the first one drops the database.
      for (const app of apps.toReversed()) await app.close();
    },
  };
}

async function succeed<Name extends OperationName>(
  protocol: ProtocolClient,
  name: Name,
  credential: string,
  request: CallRequest,
): Promise<ResponseData[Name]> {
  const outcome = await protocol.call(name, credential, request);
  if (!outcome.ok) return expect.fail(`${name} over ${protocol.name} was refused: ${outcome.code}: ${outcome.detail}`);
  return outcome.data as ResponseData[Name];
}
