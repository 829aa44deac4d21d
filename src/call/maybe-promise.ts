/**
 * A value that is there already, or to be waited for. Most calls wait for nothing, because what they ask about is held;
 * they are answered in one go, without the promises and the turns of the event loop that waiting takes.
 */
export type MaybePromise<T> = T | Promise<T>;

/** Goes on with a value as soon as it is there: at once, if it is there already. */
export function chain<T, U>(value: MaybePromise<T>, goOn: (value: T) => MaybePromise<U>): MaybePromise<U> {
  return value instanceof Promise ? value.then(goOn) : goOn(value);
}
