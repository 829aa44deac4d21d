import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { afterEach, beforeEach, expect, it, onTestFinished, vi } from "vitest";
import { createStderrDestination } from "../../../src/observe/stderr-destination.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A stderr that is a file on a disk with this many free bytes. Writes to a full disk fail with this code. */
function openFile(code: string, free: number) {
  const disk = { free, text: "" };
  const stderr = vi.spyOn(process, "stderr", "get").mockReturnValue({} as typeof process.stderr);
  const writeSync = vi.spyOn(fs, "writeSync").mockImplementation((_fd: number, bytes: unknown) => {
    if (disk.free === 0) throw Object.assign(new Error("the disk is full"), { code });
    const part = (bytes as Buffer).subarray(0, disk.free);
    disk.free -= part.length;
    disk.text += part.toString();
    return part.length;
  });
  syncBuiltinESMExports();
  const before = process.listeners("exit");
  const destination = createStderrDestination();
  stderr.mockRestore();
  onTestFinished(() => {
    writeSync.mockRestore();
    syncBuiltinESMExports();
    for (const listener of process.listeners("exit")) {
      if (!before.includes(listener)) process.off("exit", listener);
    }
  });
  return { disk, destination };
}

const lineOf = (number: number) => `{"number":${number}}\n`;

it.each(["ENOSPC", "EDQUOT", "EIO"])(
  "lines that could not be written for %s follow later, complete and in order",
  (code) => {
    const { disk, destination } = openFile(code, 20); // a line and a half
    const lines = [1, 2, 3].map(lineOf);
    for (const line of lines) {
      destination.write(line);
      vi.advanceTimersByTime(1_000);
    }
    expect(disk.text).toBe(lines.join("").slice(0, 20));
    disk.free = Number.POSITIVE_INFINITY;
    vi.advanceTimersByTime(1_000);
    expect(disk.text).toBe(lines.join(""));
  },
);

it("while the disk is full, at most 1 MiB is kept, and the number of dropped lines is logged", () => {
  const { disk, destination } = openFile("ENOSPC", 20);
  const count = 200_000;
  for (let number = 0; number < count; number++) destination.write(lineOf(number));
  disk.free = Number.POSITIVE_INFINITY;
  vi.advanceTimersByTime(1_000);
  const written: { number?: number; lines?: number }[] = disk.text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  const kept = written.filter(({ number }) => number !== undefined);
  expect(kept.map(({ number }) => number)).toEqual(kept.map((_, index) => index));
  expect(disk.text.length).toBeLessThan(1.2 * 2 ** 20);
  expect(written.slice(kept.length)).toMatchObject([{ lines: count - kept.length }]);
});
