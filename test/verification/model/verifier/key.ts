import type { Bounds } from "./design.js";
import type { Known, Message, Ping, State } from "./state.js";

/** A unique number for each state: the digits of a number with a base for each part. */
export function createKey({ lease, queue, pings, changes }: Bounds): (state: State) => number {
  const ticks = lease + 1;
  const keys = changes + 1;
  const knownBase = keys * 2;
  const messageBase = 2 + keys + (pings + 1) * ticks;
  const pingBase = ticks * 4;
  let sum = 0;

  function add(digit: number, base: number): void {
    sum = sum * base + digit;
  }
  const optional = (digit: number | undefined, base: number) => add(digit === undefined ? base : digit, base + 1);
  const knownDigit = ({ key, callerRevoked }: Known) => 2 * key + Number(callerRevoked);

  function messageDigit(message: Message): number {
    if (message.kind === "invalidate") return 0;
    if (message.kind === "invalidateAll") return 1;
    if (message.kind === "state") return 2 + message.key;
    return 2 + keys + (message.ping ?? pings) * ticks + message.remaining;
  }

  const pingDigit = ({ age, isJumped, isReceived }: Ping) => age * 4 + 2 * Number(isJumped) + Number(isReceived);

  return ({ database, replica, stream, cached, right, clockLag, call }) => {
    sum = 0;
    for (let change = 0; change < changes; change++) optional(database.keyWaits[change], ticks);
    add(database.callerRevoked ? database.callerWait : ticks, ticks + 1);
    add(knownDigit(replica.known), knownBase);
    add(replica.leaseLeft, ticks);
    const { poll } = replica;
    optional(poll?.age, ticks);
    if (poll) {
      optional(poll.found && knownDigit(poll.found), knownBase);
      add(Number(poll.isLeased), 2);
    } else add(0, (knownBase + 1) * 2);
    optional(replica.read, keys);
    add(stream ? 1 : 0, 2);
    for (let place = 0; place < queue; place++) {
      const message = stream?.queue[place];
      optional(message && messageDigit(message), messageBase);
    }
    for (let place = 0; place < pings; place++) {
      const ping = stream?.pings[place];
      optional(ping && pingDigit(ping), pingBase);
    }
    optional(stream?.unanswered, pings);
    add(Number(stream?.mustInvalidateAll ?? false), 2);
    add(Number(stream?.isWatched ?? false), 2);
    optional(cached, keys);
    add(right.left + lease, lease + ticks);
    add(Number(right.isJumped), 2);
    add(clockLag, ticks);
    optional(call && knownDigit(call.acknowledged), knownBase);
    optional(call?.key, keys);
    if (sum > Number.MAX_SAFE_INTEGER) throw new Error("the bounds are too large for unique numbers");
    return sum;
  };
}
