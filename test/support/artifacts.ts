import { appendFileSync } from "node:fs";
import { join, relative } from "node:path";
import { expect, inject } from "vitest";

/** What tests leave behind, to be searched for secrets when all of them are over. */
export type EvidenceKind = "lines of log" | "refusals" | "pages of metrics" | "rows";

/** A piece of it, as it is kept: some of one kind, from one test file. */
export interface Evidence {
  readonly kind: EvidenceKind;
  readonly from: string;
  /** How many lines, rows or answers it stands for. */
  readonly count: number;
  readonly text: string;
}

/** How much is gathered before it is written, in characters. */
const batchLength = 256 * 1024;

/** What this process has gathered of each kind since it last wrote. */
const gathered = new Map<EvidenceKind, { texts: string[]; count: number; length: number }>();

/** Keeps a text; cheap, because most texts come one line at a time. */
export function keep(kind: EvidenceKind, text: string, count = 1): void {
  const batch = gathered.get(kind) ?? { texts: [], count: 0, length: 0 };
  gathered.set(kind, batch);
  batch.texts.push(text);
  batch.count += count;
  batch.length += text.length;
  if (batch.length > batchLength) writeEvidence();
}

/** Writes what was gathered; at the latest when an application closes. */
export function writeEvidence(): void {
  const from = relative(process.cwd(), expect.getState().testPath ?? "");
  const pieces = [...gathered].map(
    ([kind, { texts, count }]): Evidence => ({ kind, from, count, text: texts.join("\n") }),
  );
  gathered.clear();
  const lines = pieces.map((piece) => `${JSON.stringify(piece)}\n`);
  appendFileSync(join(inject("evidence"), `${process.pid}.jsonl`), lines.join(""));
}
