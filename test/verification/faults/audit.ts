import { setTimeout as sleep } from "node:timers/promises";
import { callsOf } from "./calls.js";
import { judge } from "./checker.js";
import type { Ask } from "./insisting.js";
import type { Request } from "./request.js";
import type { KeySubject, WorkspaceSubject } from "./subjects.js";
import { keepViolations, type Tally } from "./tally.js";

const looksAtOnce = 8;

/** How long the service may take to find the new primary, on a busy machine. */
const patienceMs = 30_000;

/** Looks at each subject by every kind of call, and holds it against what was acknowledged. */
export async function audit(
  ask: Ask,
  subjects: readonly (WorkspaceSubject | KeySubject)[],
  tally: Tally,
  faultsOn: () => readonly string[],
) {
  let answeredAt = Number.POSITIVE_INFINITY;
  let lost = 0;
  const left = subjects.values();

  async function lookAtNext(): Promise<void> {
    for (const about of left) await lookAt(about);
  }

  async function lookAt(about: WorkspaceSubject | KeySubject): Promise<void> {
    let isLost = false;
    for (const call of new Set(callsOf(about))) {
      const { begin, end, answer } = await askUntilAnswered(ask, call.request);
      answeredAt = Math.min(answeredAt, end);
      const { word, observations = [] } = call.read(answer);
      const label = `${call.request.operation} after the promotion: ${word}`;
      const violations = judge({ begin, end, label }, observations);
      keepViolations(tally, violations, faultsOn());
      isLost ||= violations.length > 0;
    }
    if (isLost) lost++;
  }

  await Promise.all(Array.from({ length: looksAtOnce }, lookAtNext));
  return { answeredAt, audited: subjects.length, lost };
}

async function askUntilAnswered(ask: Ask, request: Request) {
  for (const deadline = performance.now() + patienceMs; performance.now() < deadline; await sleep(20)) {
    const begin = performance.now();
    const answer = await ask(request);
    if (answer.kind === "success" || answer.kind === "refused") return { begin, end: performance.now(), answer };
  }
  throw new Error(`no answer for ${patienceMs} ms: the service does not find its new primary`);
}
