import { setTimeout as sleep } from "node:timers/promises";
import {
  type Outcome,
  type Target,
  type UncheckedClient,
  type UncheckedClientKind,
  uncheckedClientKinds,
} from "../support/clients/unchecked.js";
import { openClient } from "./clients.js";
import { until } from "./processes.js";

/** The outcomes of all calls of one kind of client. */
export interface Tally {
  sent: number;
  answered: number;
  /** The number of answered calls that were sent after the shutdown began. */
  answeredLate: number;
  /** Not sent because there was no connection: how each client detects that the service is gone. */
  unsent: number;
  unprocessed: number;
  /** Unexpected outcomes, as text. */
  readonly lost: string[];
}

/** Clients that call in closed loops. */
export interface Load {
  readonly tallies: ReadonlyMap<UncheckedClientKind, Tally>;
  /** The externalIds of acknowledged writes. */
  readonly acknowledged: ReadonlySet<string>;
  /** The shutdown begins: calls sent from now on count as late. */
  markShutdown(): void;
  /** Resolves when every client has detected that the service is gone. */
  readonly over: Promise<unknown>;
  close(): void;
}

/** Per kind of client: the connections, the concurrent calls on each, and the pause between two calls. */
const clients: readonly { kind: UncheckedClientKind; connections: number; calls: number; pauseMs: number }[] = [
  { kind: "HTTP", connections: 16, calls: 1, pauseMs: 0 },
  { kind: "HTTP", connections: 8, calls: 1, pauseMs: 40 },
  { kind: "Connect", connections: 6, calls: 1, pauseMs: 0 },
  { kind: "gRPC by grpc-js", connections: 3, calls: 4, pauseMs: 0 },
  { kind: "gRPC by grpc-js", connections: 3, calls: 1, pauseMs: 40 },
  { kind: "gRPC by connect-node", connections: 3, calls: 3, pauseMs: 0 },
  { kind: "gRPC by connect-node", connections: 3, calls: 1, pauseMs: 40 },
];

/** Calls the service with all kinds of clients until it is gone. Of four calls, three verify a key and one writes. */
export function startLoad(target: Target, key: string): Load {
  const tallies = new Map<UncheckedClientKind, Tally>();
  for (const kind of uncheckedClientKinds) {
    tallies.set(kind, { sent: 0, answered: 0, answeredLate: 0, unsent: 0, unprocessed: 0, lost: [] });
  }
  const acknowledged = new Set<string>();
  const opened: UncheckedClient[] = [];
  const loops: Promise<void>[] = [];
  let late = false;
  let writes = 0;

  async function callAndCount(client: UncheckedClient, tally: Tally, turn: number): Promise<Outcome> {
    const sentLate = late;
    const externalId = turn % 4 === 3 ? `user-${++writes}` : undefined;
    tally.sent += 1;
    const outcome = await (externalId === undefined
      ? client.call("verifyKey", key, { key })
      : client.call("createIdentity", key, { externalId }));
    if (outcome.kind === "success") {
      tally.answered += 1;
      if (sentLate) tally.answeredLate += 1;
      if (externalId !== undefined) acknowledged.add(externalId);
    } else if (outcome.kind === "unsent" || outcome.kind === "unprocessed") tally[outcome.kind] += 1;
    else tally.lost.push(JSON.stringify(outcome));
    return outcome;
  }

  async function loop(client: UncheckedClient, tally: Tally, pauseMs: number): Promise<void> {
    for (let turn = 0; ; turn++) {
      const { kind } = await callAndCount(client, tally, turn);
      if (kind === "unsent" || kind === "disconnected") return;
      if (pauseMs > 0) await sleep(pauseMs);
    }
  }

  for (const { kind, connections, calls, pauseMs } of clients) {
    for (let connection = 0; connection < connections; connection++) {
      const client = openClient(kind, target);
      opened.push(client);
      for (let call = 0; call < calls; call++) loops.push(loop(client, tallies.get(kind) as Tally, pauseMs));
    }
  }
  return {
    tallies,
    acknowledged,
    markShutdown: () => {
      late = true;
    },
    over: Promise.all(loops),
    close: () => {
      for (const client of opened) client.close();
    },
  };
}

/** Waits until each kind of client has received this many more responses. */
export async function waitForResponses({ tallies }: Load, count: number): Promise<void> {
  const before = new Map([...tallies].map(([kind, { answered }]) => [kind, answered]));
  await until(`${count} responses for every kind of client`, () =>
    [...tallies].every(([kind, { answered }]) => answered - (before.get(kind) ?? 0) >= count) ? true : undefined,
  );
}
