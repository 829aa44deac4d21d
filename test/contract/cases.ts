import { afterAll, beforeAll, expect, test } from "vitest";
import type { AppOptions } from "../../src/app.js";
import { openProtocols, type ProtocolClients } from "../support/clients/all.js";
import type { ProtocolName } from "../support/clients/protocol-client.js";
import { openTestApp, operatorKey, type TestApp } from "../support/harness.js";
import { type Clock, openScene, type Scene } from "./scene.js";

/** A test case of the contract. It runs over one protocol, and asserts what every protocol must do. */
export type Scenario = (scene: Scene) => Promise<void>;

/** The application of a test file with clients of its protocols, and functions to run cases over them. */
export interface Contract {
  readonly app: TestApp;
  readonly protocols: ProtocolClients;
  readonly clock: Clock;
  /**
   * Runs a case over each protocol, then compares the responses of the protocols. After the first protocol, the others
   * run concurrently, because each has its own workspaces, and cases mostly wait for acknowledgements. They run in turn
   * if the case has advanced the clock, or called as the operator: both may affect the other protocols.
   */
  everyProtocol(guarantee: string, scenario: Scenario): void;
  /** The same, over some of the protocols. */
  someProtocols(names: readonly ProtocolName[], guarantee: string, scenario: Scenario): void;
}

const threeProtocols: readonly ProtocolName[] = ["grpc", "http", "connect"];

/** All protocols, and gRPC-Web besides Connect: for cases that depend on the wire format. */
export const allProtocols: readonly ProtocolName[] = [...threeProtocols, "grpc-web"];

/**
 * Opens an application for the tests of a file; call it once, at the top.
 *
 * @param alwaysInTurn for cases that read the whole database, and so the changes of other protocols
 */
export function openContract(
  everyProtocol = threeProtocols,
  options: Partial<AppOptions> = {},
  { alwaysInTurn = false } = {},
): Contract {
  let app: TestApp | undefined;
  let protocols: ProtocolClients | undefined;
  let ahead = 0;
  const clock: Clock = {
    now: () => Date.now() + ahead,
    advance(ms) {
      ahead += ms;
      return contract.app.advance(ms);
    },
  };

  beforeAll(async () => {
    app = await openTestApp(options);
    protocols = openProtocols(app);
  });
  afterAll(async () => {
    protocols?.close();
    await app?.close();
  });

  const contract: Contract = {
    get app() {
      return opened(app);
    },
    get protocols() {
      return opened(protocols);
    },
    clock,
    everyProtocol: (guarantee, scenario) => contract.someProtocols(everyProtocol, guarantee, scenario),
    someProtocols(names, guarantee, scenario) {
      test(guarantee, async () => {
        const [first = "grpc", ...others] = names;
        const shared = { used: alwaysInTurn };
        const expected = await record(first, shared);
        const records = shared.used
          ? await inTurn(others, (name) => record(name, shared))
          : await Promise.all(others.map((name) => record(name, shared)));
        for (const [index, name] of others.entries()) {
          expect(records[index], `${name} responds as ${first} does`).toEqual(expected);
        }
      });

      /** Runs the case over one protocol, and notes whether it uses state that the protocols share. */
      async function record(name: ProtocolName, shared: { used: boolean }): Promise<unknown> {
        const protocol = contract.protocols[name];
        const scene = await openScene(
          {
            ...protocol,
            call(operation, credential, request, headers = []) {
              const isOfOperator = credential === operatorKey;
              if (isOfOperator && (operation !== "createWorkspace" || headers.length > 0)) shared.used = true;
              return protocol.call(operation, credential, request, headers);
            },
          },
          {
            now: clock.now,
            advance(ms) {
              shared.used = true;
              return clock.advance(ms);
            },
          },
        );
        await scenario(scene).catch((error: Error) => failAt(name, error));
        return withoutChance(scene.transcript);
      }
    },
  };
  return contract;
}

async function inTurn<T, U>(items: readonly T[], run: (item: T) => Promise<U>): Promise<U[]> {
  const results: U[] = [];
  for (const item of items) results.push(await run(item));
  return results;
}

function opened<T>(thing: T | undefined): T {
  if (thing === undefined) throw new Error("the application is not open: use it inside a test");
  return thing;
}

function failAt(name: ProtocolName, error: Error): never {
  error.message = `through ${name}: ${error.message}`;
  throw error;
}

const times = new Set(["at", "createdAt", "updatedAt", "disabledAt", "expires", "reset", "time"]);

/** The responses, with ids numbered in the order of their appearance, and secrets and times blanked out. */
function withoutChance(transcript: Scene["transcript"]): unknown {
  const ids = new Map<string, string>();
  const number = (id: string, prefix: string) => {
    if (!ids.has(id)) ids.set(id, `${prefix}_${ids.size}`);
    return ids.get(id) ?? "";
  };
  const text = JSON.stringify(transcript, (name, value: unknown) => {
    if (name === "lastUsedAt") return undefined; // written in batches: its time is not deterministic
    if (times.has(name) && typeof value === "number") return "a time";
    if (typeof value !== "string") return value;
    if (name === "cursor") return "a cursor";
    if (name === "start") return value.replace(/_[^_]{4}$/, "_****");
    return value
      .replace(/\b\w+_[0-9A-Za-z]{39,349}$/, "a secret")
      .replace(/^[A-Za-z0-9+/]{43}=$/, "a hash")
      .replace(/\b\d{4}-\d\d-\d\dT[\d:.]+Z\b/g, "a time")
      .replace(/\b(ws|key|id|evt|req|api|role|perm|rl|ovr)_[0-9a-z]{26}\b/g, number);
  });
  return JSON.parse(text);
}
