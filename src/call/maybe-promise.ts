/**
 * A value, or a promise of it. Most calls need no I/O, because their key is cached. They are answered synchronously,
 * without the cost of promises and turns of the event loop.
 */
export type MaybePromise<T> = T | Promise<T>;

/** Calls `next` with the value: synchronously if the value is available, otherwise when its promise resolves. */
export function chain<T, U>(value: MaybePromise<T>, next: (value: T) => MaybePromise<U>): MaybePromise<U> {
  return value instanceof Promise ? value.then(next) : next(value);
}
