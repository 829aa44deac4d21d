import { appendFileSync } from "node:fs";
import { join, relative } from "node:path";
import { expect, inject } from "vitest";

/** The kinds of output of the tests that are searched for secrets at the end of the run. */
export type EvidenceKind = "log lines" | "refusals" | "metrics pages" | "rows";

/** Recorded output of one kind, from one test file. */
export interface Evidence {
  readonly kind: EvidenceKind;
  readonly from: string;
  /** The number of lines, rows or responses in it. */
  readonly count: number;
  readonly text: string;
}

/** The buffered characters after which the buffer is written. */
const batchLength = 256 * 1024;

/** The output of each kind that this process has buffered since its last write. */
const buffered = new Map<EvidenceKind, { texts: string[]; count: number; length: number }>();

/** Records a text. It is buffered, because most texts arrive one line at a time. */
export function keep(kind: EvidenceKind, text: string, count = 1): void {
  const batch = buffered.get(kind) ?? { texts: [], count: 0, length: 0 };
  buffered.set(kind, batch);
  batch.texts.push(text);
  batch.count += count;
  batch.length += text.length;
  if (batch.length > batchLength) writeEvidence();
}

/** Writes the buffer, at the latest when an application closes. */
export function writeEvidence(): void {
  const from = relative(process.cwd(), expect.getState().testPath ?? "");
  const batches = [...buffered].map(
    ([kind, { texts, count }]): Evidence => ({ kind, from, count, text: texts.join("\n") }),
  );
  buffered.clear();
  const lines = batches.map((piece) => `${JSON.stringify(piece)}\n`);
  appendFileSync(join(inject("evidence"), `${process.pid}.jsonl`), lines.join(""));
}
