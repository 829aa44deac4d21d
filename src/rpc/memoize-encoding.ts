import type { Message } from "@bufbuild/protobuf";

/**
 * Encodes a frozen message only once. A handler freezes a response that is the same for every call, such as the result
 * of verifying a cached key.
 */
export function memoizeEncoding<T>(encode: (message: Message) => T): (message: Message) => T {
  const encodings = new WeakMap<Message, T>();
  return (message) => {
    const cached = encodings.get(message);
    if (cached !== undefined) return cached;
    const encoded = encode(message);
    if (Object.isFrozen(message)) encodings.set(message, encoded);
    return encoded;
  };
}
