/** Reports progress: on a terminal in one line that is rewritten, elsewhere in one line per report. */
export interface Progress {
  say(text: string): void;
  /** Clears the line for other output. */
  clear(): void;
}

/** Maximum interval between reports on a terminal. */
const maxTerminalIntervalMs = 200;

/** @param minIntervalMs minimum interval between reports; further reports within it are dropped */
export function createProgress(stream: NodeJS.WriteStream, minIntervalMs = 0): Progress {
  const startedAt = performance.now();
  const intervalMs = stream.isTTY ? Math.min(minIntervalMs, maxTerminalIntervalMs) : minIntervalMs;
  let dueAt = startedAt + intervalMs;
  return {
    say(text) {
      const now = performance.now();
      if (now < dueAt) return;
      dueAt = now + intervalMs;
      const line = `${((now - startedAt) / 1_000).toFixed(0).padStart(4)} s  ${text}`;
      stream.write(stream.isTTY ? `\r\u001b[K${line.slice(0, stream.columns - 1)}` : `${line}\n`);
    },
    clear() {
      if (stream.isTTY) stream.write("\r\u001b[K");
    },
  };
}
