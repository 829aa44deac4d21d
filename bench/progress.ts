/** Says what is going on: on a terminal in one line that is rewritten, elsewhere in a line each. */
export interface Progress {
  say(text: string): void;
  /** Leaves the line to others. */
  clear(): void;
}

export function createProgress(stream: NodeJS.WriteStream): Progress {
  const startedAt = performance.now();
  return {
    say(text) {
      const line = `${((performance.now() - startedAt) / 1_000).toFixed(0).padStart(4)} s  ${text}`;
      stream.write(stream.isTTY ? `\r\u001b[K${line.slice(0, stream.columns - 1)}` : `${line}\n`);
    },
    clear() {
      if (stream.isTTY) stream.write("\r\u001b[K");
    },
  };
}
