import { setTimeout as sleep } from "node:timers/promises";
import type { Request } from "../../support/clients/low-cost/request.js";
import { callsOf } from "./calls.js";
import { checkCall } from "./checker.js";
import type { Sender } from "./insisting.js";
import type { KeySubject, WorkspaceSubject } from "./subjects.js";
import { recordViolations, type Tally } from "./tally.js";

const maxInFlight = 8;

/** Long enough for the service to find the new primary, on a busy machine. */
const responseTimeoutMs = 30_000;

/** Makes every kind of call about each subject, and compares the results with the acknowledged changes. */
export async function audit(
  send: Sender,
  subjects: readonly (WorkspaceSubject | KeySubject)[],
  tally: Tally,
  activeFaults: () => readonly string[],
) {
  let firstResponseAt = Number.POSITIVE_INFINITY;
  let lost = 0;
  const remaining = subjects.values();

  async function checkNext(): Promise<void> {
    for (const about of remaining) await checkSubject(about);
  }

  async function checkSubject(about: WorkspaceSubject | KeySubject): Promise<void> {
    let isLost = false;
    for (const call of new Set(callsOf(about))) {
      const { begin, end, result } = await sendUntilResponse(send, call.request);
      firstResponseAt = Math.min(firstResponseAt, end);
      const { outcome, observations = [] } = call.read(result);
      const label = `${call.request.operation} after the promotion: ${outcome}`;
      const violations = checkCall({ begin, end, label }, observations);
      recordViolations(tally, violations, activeFaults());
      isLost ||= violations.length > 0;
    }
    if (isLost) lost++;
  }

  await Promise.all(Array.from({ length: maxInFlight }, checkNext));
  return { firstResponseAt, audited: subjects.length, lost };
}

async function sendUntilResponse(send: Sender, request: Request) {
  for (const deadline = performance.now() + responseTimeoutMs; performance.now() < deadline; await sleep(20)) {
    const begin = performance.now();
    const result = await send(request);
    if (result.kind === "success" || result.kind === "refused") return { begin, end: performance.now(), result };
  }
  throw new Error(`no response for ${responseTimeoutMs} ms: the service does not find its new primary`);
}
