/** One page of a list. */
export interface Page<Item> {
  data: Item[];
  pagination: Pagination;
}

/** Where a list continues. */
export interface Pagination {
  /** Whether more items follow. */
  hasMore: boolean;
  /** The cursor of the next page. */
  cursor?: string;
}

/**
 * A list. `await` returns one page of it, and `for await` all items from there on, with a call for each page. Nothing is
 * sent before.
 */
export class Pages<Item> implements Promise<Page<Item>>, AsyncIterable<Item> {
  readonly [Symbol.toStringTag] = "Pages";
  readonly #fetchPage: (cursor?: string) => Promise<Page<Item>>;
  #first: Promise<Page<Item>> | undefined;

  /** @param fetchPage without a cursor: the page of the request */
  constructor(fetchPage: (cursor?: string) => Promise<Page<Item>>) {
    this.#fetchPage = fetchPage;
  }

  get #page(): Promise<Page<Item>> {
    this.#first ??= this.#fetchPage();
    return this.#first;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined> {
    let page = await this.#page;
    for (;;) {
      yield* page.data;
      const { hasMore, cursor } = page.pagination;
      if (!hasMore || cursor === undefined) return;
      page = await this.#fetchPage(cursor);
    }
  }

  // biome-ignore lint/suspicious/noThenProperty: a list is awaited for one page of it
  then<Result = Page<Item>, Failure = never>(
    onfulfilled?: ((page: Page<Item>) => Result | PromiseLike<Result>) | null,
    onrejected?: ((reason: unknown) => Failure | PromiseLike<Failure>) | null,
  ): Promise<Result | Failure> {
    return this.#page.then(onfulfilled, onrejected);
  }

  catch<Failure = never>(
    onrejected?: ((reason: unknown) => Failure | PromiseLike<Failure>) | null,
  ): Promise<Page<Item> | Failure> {
    return this.#page.catch(onrejected);
  }

  finally(onfinally?: (() => void) | null): Promise<Page<Item>> {
    return this.#page.finally(onfinally);
  }
}
