import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createProgress } from "../../../commands/progress.js";

describe("progress", () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ["performance"] }));
  afterEach(() => void vi.useRealTimers());

  it("is one line per message, with the elapsed seconds", () => {
    const { stream, written } = openStream({ isTTY: false });
    const progress = createProgress(stream);
    progress.say("starting");
    vi.advanceTimersByTime(2_000);
    progress.say("ending");
    progress.clear();
    expect(written).toEqual(["   0 s  starting\n", "   2 s  ending\n"]);
  });

  it("is one line on a terminal: rewritten, truncated to its width, and erased at the end", () => {
    const { stream, written } = openStream({ isTTY: true, columns: 12 });
    const progress = createProgress(stream);
    progress.say("starting");
    progress.say("ending");
    progress.clear();
    expect(written).toEqual(["\r\u001b[K   0 s  sta", "\r\u001b[K   0 s  end", "\r\u001b[K"]);
  });

  it.each([
    [false, ["5 s", "10 s"]],
    [true, ["0 s", "0 s", "1 s"]],
  ])("is throttled if it is reported continuously: on a terminal %s", (isTTY, first) => {
    const { stream, written } = openStream({ isTTY, columns: 80 });
    const progress = createProgress(stream, 5_000);
    for (let tenths = 0; tenths <= 100; tenths++, vi.advanceTimersByTime(100)) progress.say("going on");
    expect(written.map((line) => /\d+ s/.exec(line)?.[0]).slice(0, first.length)).toEqual(first);
    expect(written).toHaveLength(isTTY ? 50 : 2);
  });
});

function openStream(kind: object) {
  const written: string[] = [];
  const stream = { ...kind, write: (text: string) => written.push(text) } as unknown as NodeJS.WriteStream;
  return { stream, written };
}
