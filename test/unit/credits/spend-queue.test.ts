import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { createSpendQueue, type WaitingSpend } from "../../../src/credits/spend-queue.js";

const limits = { ofOneWorkspace: 100, total: 1_000 };

function spendOf(workspaceId: string, cost = 1): WaitingSpend {
  return { workspaceId, keyId: `key of ${workspaceId}`, cost, cancelled: false };
}

const workspacesOf = (spends: readonly WaitingSpend[]) => spends.map(({ workspaceId }) => workspaceId).join("");

describe("spends that wait for a statement", () => {
  it("are taken in their order", () => {
    const queue = createSpendQueue(limits);
    for (const cost of [3, 1, 2]) queue.add(spendOf("a", cost));
    expect(queue.take(2).map(({ cost }) => cost)).toEqual([3, 1]);
    expect(queue.take(2).map(({ cost }) => cost)).toEqual([2]);
    expect(queue.take(2)).toEqual([]);
  });

  it("of different workspaces take turns, however many one of them has", () => {
    const queue = createSpendQueue(limits);
    for (let count = 0; count < 10; count++) queue.add(spendOf("a"));
    for (const workspaceId of ["b", "c", "c"]) queue.add(spendOf(workspaceId));
    expect(workspacesOf(queue.take(5))).toBe("abcac");
    expect(workspacesOf(queue.take(5))).toBe("aaaaa");
  });

  it("of more workspaces than a statement has spends: the next statement continues with the others", () => {
    const queue = createSpendQueue(limits);
    for (const workspaceId of ["a", "b", "c", "a", "b", "c"]) queue.add(spendOf(workspaceId));
    expect(workspacesOf(queue.take(2))).toBe("ab");
    queue.add(spendOf("a"));
    expect(workspacesOf(queue.take(2))).toBe("ca");
    expect(workspacesOf(queue.take(2))).toBe("bc");
  });

  it("are left out once they are cancelled", () => {
    const queue = createSpendQueue(limits);
    const [first, second] = [spendOf("a"), spendOf("a")];
    queue.add(first);
    queue.add(second);
    first.cancelled = true;
    expect(queue.take(1)).toEqual([second]);
  });

  it("are refused beyond the limit of their workspace; others are not", () => {
    const queue = createSpendQueue({ ofOneWorkspace: 2, total: 10 });
    expect([1, 2, 3].map(() => queue.add(spendOf("a")))).toEqual([true, true, false]);
    expect(queue.add(spendOf("b"))).toBe(true);
    queue.take(1);
    expect(queue.add(spendOf("a"))).toBe(true);
  });

  it("are refused beyond the limit of all workspaces, with cancelled ones", () => {
    const queue = createSpendQueue({ ofOneWorkspace: 2, total: 2 });
    const cancelled = spendOf("a");
    queue.add(cancelled);
    cancelled.cancelled = true;
    expect(["b", "c"].map((workspaceId) => queue.add(spendOf(workspaceId)))).toEqual([true, false]);
    queue.take(2);
    expect(queue.add(spendOf("c"))).toBe(true);
  });

  it("are no longer referenced once they are taken, also if the queue of their workspace never gets empty", async () => {
    const queue = createSpendQueue(limits);
    const added: WeakRef<WaitingSpend>[] = [];
    const add = (spends: number) => {
      for (let count = 0; count < spends; count++) {
        const spend = spendOf("a");
        queue.add(spend);
        added.push(new WeakRef(spend));
      }
    };
    add(50);
    for (let round = 0; round < 100; round++) {
      expect(queue.take(20).length).toBe(20);
      add(20);
    }
    // A new weak reference keeps its object until the next task.
    await sleep(1);
    setFlagsFromString("--expose-gc");
    runInNewContext("gc")();
    // Of 2,050. An array of the last round may still be on the stack.
    expect(added.filter((spend) => spend.deref() !== undefined).length).toBeLessThanOrEqual(50 + 20);
    expect(queue.take(100).length).toBe(50);
  });
});
