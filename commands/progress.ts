/** Says what is going on: on a terminal in one line that is rewritten, elsewhere in a line each. */
export interface Progress {
  say(text: string): void;
  /** Leaves the line to others. */
  clear(): void;
}

/** On a terminal, even what is said all the time can be followed. */
const mostOnTerminalMs = 200;

/** @param pauseMs for those who say all the time how things stand: so long at least, most of it is left unsaid */
export function createProgress(stream: NodeJS.WriteStream, pauseMs = 0): Progress {
  const startedAt = performance.now();
  const betweenMs = stream.isTTY ? Math.min(pauseMs, mostOnTerminalMs) : pauseMs;
  let dueAt = startedAt + betweenMs;
  return {
    say(text) {
      const now = performance.now();
      if (now < dueAt) return;
      dueAt = now + betweenMs;
      const line = `${((now - startedAt) / 1_000).toFixed(0).padStart(4)} s  ${text}`;
      stream.write(stream.isTTY ? `\r\u001b[K${line.slice(0, stream.columns - 1)}` : `${line}\n`);
    },
    clear() {
      if (stream.isTTY) stream.write("\r\u001b[K");
    },
  };
}
