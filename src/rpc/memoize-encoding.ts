/**
 * Encodes a frozen message, or a frozen part of one, only once. A handler freezes a response that is the same for every call,
 * such as the result of verifying a cached key.
 */
export function memoizeEncoding<T extends object, Encoded>(encode: (message: T) => Encoded): (message: T) => Encoded {
  const encodings = new WeakMap<T, Encoded>();
  return (message) => {
    const cached = encodings.get(message);
    if (cached !== undefined) return cached;
    const encoded = encode(message);
    if (Object.isFrozen(message)) encodings.set(message, encoded);
    return encoded;
  };
}
