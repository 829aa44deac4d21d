/** A queue whose items are consumed by an asynchronous iteration. */
export interface Queue<T> extends AsyncIterable<T> {
  push(item: T): void;
  /** Ends the iteration after the items in the queue. */
  end(): void;
}

export function createQueue<T>(): Queue<T> {
  let items: T[] = [];
  let isEnded = false;
  let notify = () => {};

  return {
    push(item) {
      items.push(item);
      notify();
    },
    end() {
      isEnded = true;
      notify();
    },
    async *[Symbol.asyncIterator]() {
      for (;;) {
        const batch = items;
        items = [];
        yield* batch;
        if (items.length > 0) continue;
        if (isEnded) return;
        await new Promise<void>((resolve) => {
          notify = resolve;
        });
      }
    },
  };
}
