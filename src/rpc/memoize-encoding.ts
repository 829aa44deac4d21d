import type { Message } from "@bufbuild/protobuf";

/**
 * Writes a message that cannot change any more only once. A handler says so by freezing what it returns; the verdict on
 * a key that is held, for one, is the same for every call.
 */
export function memoizeEncoding<T>(write: (message: Message) => T): (message: Message) => T {
  const written = new WeakMap<Message, T>();
  return (message) => {
    const known = written.get(message);
    if (known !== undefined) return known;
    const text = write(message);
    if (Object.isFrozen(message)) written.set(message, text);
    return text;
  };
}
