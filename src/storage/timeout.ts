/** PostgreSQL did not answer in time. */
export class TimeoutError extends Error {
  override readonly name = "TimeoutError";
  readonly code = "ETIMEDOUT";
}

/** Rejects with a TimeoutError if the result takes longer than this. */
export async function withTimeout<T>(timeoutMs: number, result: PromiseLike<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      // If this process was busy or paused, the response may have arrived unread: I/O is handled first.
      setImmediate(() => setImmediate(() => reject(new TimeoutError(`no response within ${timeoutMs} ms`))));
    }, timeoutMs);
  });
  try {
    return await Promise.race([result, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
