import { setImmediate } from "node:timers/promises";
import { beforeEach, describe, expect, it } from "vitest";
import { createTurnShares, type MessageQueue, type TurnShares } from "../../../src/grpc/turn-shares.js";

let processed: string[];
let shares: TurnShares;
beforeEach(() => {
  processed = [];
  shares = createTurnShares(2);
});

/** Opens a queue, and pushes messages with its name. */
function open(name: string, tenant: string | undefined, messages: number, onDrain = () => {}): MessageQueue {
  const process = (framed: Buffer) => void processed.push(`${framed}`);
  const queue = shares.openQueue({ process, onWait: () => {}, onDrain });
  if (tenant !== undefined) queue.begin(tenant);
  for (let message = 0; message < messages; message++) queue.push(Buffer.from(name));
  return queue;
}

describe("in one turn of the event loop", () => {
  it("each tenant has its share, whatever others use", async () => {
    open("a", "tenant a", 3);
    open("b", "tenant b", 1);
    expect(processed).toEqual(["a", "a", "b"]);
    await setImmediate();
    expect(processed).toEqual(["a", "a", "b", "a"]);
  });

  it("a long message takes the place of several short ones", async () => {
    const queue = open("short", "tenant", 1);
    queue.push(Buffer.alloc(500, "l"));
    queue.push(Buffer.from("later"));
    expect(processed.map((text) => text.length)).toEqual([5, 500]);
    await setImmediate();
    expect(processed).toHaveLength(3);
  });

  it("the streams of a tenant take turns", async () => {
    open("first", "tenant", 6);
    open("second", "tenant", 1);
    open("third", "tenant", 1);
    expect(processed.splice(0)).toEqual(["first", "first"]);
    await setImmediate();
    expect(processed.splice(0)).toEqual(["first", "second"]);
    await setImmediate();
    expect(processed.splice(0)).toEqual(["third", "first"]);
    await setImmediate();
    expect(processed.splice(0)).toEqual(["first", "first"]);
  });
});

describe("a queue", () => {
  it("keeps messages until its tenant is known, counts their memory, and says when it is empty", async () => {
    let drained = 0;
    const queue = open("early", undefined, 2, () => {
      drained += 1;
    });
    await setImmediate();
    expect(processed).toEqual([]);
    expect(queue.bytes).toBeGreaterThan(2 * "early".length);
    queue.begin("tenant");
    await setImmediate();
    expect(processed).toEqual(["early", "early"]);
    expect([queue.isEmpty, queue.bytes, drained]).toEqual([true, 0, 1]);
  });

  it("processes nothing after it was cleared", async () => {
    const queue = open("message", "tenant", 5);
    queue.clear();
    await setImmediate();
    await setImmediate();
    expect(processed).toHaveLength(2);
    expect(queue.bytes).toBe(0);
  });
});
