import { setTimeout as sleep } from "node:timers/promises";
import { type Caller, type CallerKind, callerKinds, type Fate, type Target } from "./callers.js";
import { until } from "./processes.js";

/** What became of all calls of one kind of client. */
export interface Tally {
  sent: number;
  answered: number;
  /** Of those answered, how many were sent after the service was told to stop. */
  answeredLate: number;
  /** No connection to send it on: how each client learns that the service is gone. */
  unsent: number;
  returned: number;
  /** Whatever must not happen, in words. */
  readonly lost: string[];
}

/** Clients in closed loops. */
export interface Load {
  readonly tallies: ReadonlyMap<CallerKind, Tally>;
  /** What was written and acknowledged, by externalId. */
  readonly acknowledged: ReadonlySet<string>;
  /** From now on, what is sent is sent late. */
  toldToStop(): void;
  /** Resolves when every client has found the service gone. */
  readonly over: Promise<unknown>;
  close(): void;
}

/** How many connections each kind of client has, how many calls at once on each, and how long it waits between two. */
const clients: readonly { kind: CallerKind; connections: number; calls: number; pauseMs: number }[] = [
  { kind: "HTTP, kept alive", connections: 16, calls: 1, pauseMs: 0 },
  { kind: "HTTP, kept alive", connections: 8, calls: 1, pauseMs: 40 },
  { kind: "Connect, kept alive", connections: 6, calls: 1, pauseMs: 0 },
  { kind: "gRPC by grpc-js", connections: 3, calls: 4, pauseMs: 0 },
  { kind: "gRPC by grpc-js", connections: 3, calls: 1, pauseMs: 40 },
  { kind: "gRPC by connect-node", connections: 3, calls: 3, pauseMs: 0 },
  { kind: "gRPC by connect-node", connections: 3, calls: 1, pauseMs: 40 },
];

/** Calls the service from all sides until it is gone: of each four calls, three verify a key and one writes. */
export function startLoad(target: Target, key: string): Load {
  const tallies = new Map<CallerKind, Tally>();
  for (const kind of Object.keys(callerKinds) as CallerKind[]) {
    tallies.set(kind, { sent: 0, answered: 0, answeredLate: 0, unsent: 0, returned: 0, lost: [] });
  }
  const acknowledged = new Set<string>();
  const callers: Caller[] = [];
  const loops: Promise<void>[] = [];
  let late = false;
  let writes = 0;

  async function callAndCount(caller: Caller, tally: Tally, turn: number): Promise<Fate> {
    const sentLate = late;
    const externalId = turn % 4 === 3 ? `user-${++writes}` : undefined;
    tally.sent += 1;
    const fate = await (externalId === undefined
      ? caller.call("verifyKey", key, { key })
      : caller.call("createIdentity", key, { externalId }));
    if (fate.kind === "answered") {
      tally.answered += 1;
      if (sentLate) tally.answeredLate += 1;
      if (externalId !== undefined) acknowledged.add(externalId);
    } else if (fate.kind === "unsent" || fate.kind === "returned") tally[fate.kind] += 1;
    else tally.lost.push(JSON.stringify(fate));
    return fate;
  }

  async function loop(caller: Caller, tally: Tally, pauseMs: number): Promise<void> {
    for (let turn = 0; ; turn++) {
      const { kind } = await callAndCount(caller, tally, turn);
      if (kind === "unsent" || kind === "cut") return;
      if (pauseMs > 0) await sleep(pauseMs);
    }
  }

  for (const { kind, connections, calls, pauseMs } of clients) {
    for (let connection = 0; connection < connections; connection++) {
      const caller = callerKinds[kind](target);
      callers.push(caller);
      for (let call = 0; call < calls; call++) loops.push(loop(caller, tallies.get(kind) as Tally, pauseMs));
    }
  }
  return {
    tallies,
    acknowledged,
    toldToStop: () => {
      late = true;
    },
    over: Promise.all(loops),
    close: () => {
      for (const caller of callers) caller.close();
    },
  };
}

/** Waits until each kind of client has been answered so many times more. */
export async function underLoad({ tallies }: Load, answers: number): Promise<void> {
  const before = new Map([...tallies].map(([kind, { answered }]) => [kind, answered]));
  await until(`${answers} answers for every kind of client`, () =>
    [...tallies].every(([kind, { answered }]) => answered - (before.get(kind) ?? 0) >= answers) ? true : undefined,
  );
}
