import { expect, it } from "vitest";
import { createQueue } from "../../../src/verifier/queue.js";

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const collected: T[] = [];
  for await (const item of items) collected.push(item);
  return collected;
}

it("delivers items in order, those before and those after the consumer begins, and then ends", async () => {
  const queue = createQueue<number>();
  queue.push(1);
  queue.push(2);
  const collected = collect(queue);
  queue.push(3);
  await Promise.resolve();
  queue.push(4);
  queue.end();
  expect(await collected).toEqual([1, 2, 3, 4]);
});

it("delivers what is pushed while an item is consumed", async () => {
  const queue = createQueue<number>();
  queue.push(0);
  const collected: number[] = [];
  for await (const item of queue) {
    collected.push(item);
    if (item < 3) queue.push(item + 1);
    else queue.end();
  }
  expect(collected).toEqual([0, 1, 2, 3]);
});

it("ends at once if it is empty and was ended before", async () => {
  const queue = createQueue<number>();
  queue.end();
  expect(await collect(queue)).toEqual([]);
});
