/** A server that this process can run, more than once, always at the same address. */
export interface Backend {
  /** What people call it. */
  readonly name: string;
  /** How to connect to it: by a socket in the file system, which other users cannot reach. */
  readonly url: string;
  /**
   * Resolves when it answers; rejects with why it does not.
   *
   * @param unwanted aborts a start that takes long, as the recovery of a database may; then nothing runs any more
   */
  start(unwanted?: AbortSignal): Promise<Run>;
  /** Clears away what was needed to run it. */
  discard(): void;
}

/** A server that runs. */
export interface Run {
  /** Resolves when the server has ended, whoever ended it, to why that was, as far as it can be known. */
  readonly ended: Promise<string>;
  stop(): Promise<void>;
}
