/** A server that this process can start, more than once, always at the same address. */
export interface Backend {
  /** The name for log lines. */
  readonly name: string;
  /** The URL of a Unix socket, which other users cannot access. */
  readonly url: string;
  /**
   * Resolves when the server accepts connections; rejects with the reason if it does not start.
   *
   * @param abortSignal aborts a start that takes long, such as the recovery of a database; no process remains then
   */
  start(abortSignal?: AbortSignal): Promise<Run>;
  /** Removes the temporary resources of the server. */
  discard(): void;
}

/** A running server. */
export interface Run {
  /** Resolves when the server has exited for any cause, to the reason as far as it is known. */
  readonly ended: Promise<string>;
  stop(): Promise<void>;
}
