import { prepare } from "../../support/clients/low-cost/request.js";
import { observationMs, pauseBetweenWrites, retryUntilAcknowledged } from "./life.js";
import type { Population } from "./population.js";
import { type WorkspaceSubject, workspaceSubject } from "./subjects.js";
import type { Writer } from "./writer.js";

/** Creates a workspace with its first key. Undefined when the round is over. */
export async function createWorkspace(writer: Writer, operatorKey: string): Promise<WorkspaceSubject | undefined> {
  const created = await writer.create(prepare("createWorkspace", operatorKey, { name: "faults" }));
  return created && workspaceSubject(`${created["workspaceId"]}`, `${created["keyId"]}`, `${created["key"]}`);
}

/**
 * Creates workspaces one after the other. Disables and enables each until an outcome is unknown, or until it is deleted:
 * then its key must stay refused, whatever was in flight.
 */
export async function runWorkspaceLifecycles(
  writer: Writer,
  population: Population,
  operatorKey: string,
): Promise<void> {
  while (writer.writing()) {
    const workspace = await createWorkspace(writer, operatorKey);
    if (workspace === undefined) return;
    const { workspaceId, subject } = workspace;
    const remove = population.add(workspace);
    const reason = "UNPAID_BILLING";
    const protoJson = { workspaceId, reason: `DISABLED_REASON_${reason}` };
    const requests = {
      disabled: prepare("disableWorkspace", operatorKey, { workspaceId, reason }, protoJson),
      enabled: prepare("enableWorkspace", operatorKey, { workspaceId }),
      deleted: prepare("deleteWorkspace", operatorKey, { workspaceId }),
    };
    for (let state: keyof typeof requests = "enabled", settled = true; settled && writer.writing(); ) {
      await pauseBetweenWrites(writer);
      const afterDisabling = writer.random.chance(0.2) ? "deleted" : "enabled";
      const next: keyof typeof requests = state === "enabled" ? "disabled" : afterDisabling;
      const register = next === "deleted" ? "existence" : "workspace";
      const write = () => writer.write(subject, register, next, requests[next]);
      const outcome = await write();
      if (outcome.kind === "acknowledged") state = next;
      if (outcome.kind === "unknown") await retryUntilAcknowledged(writer, write);
      else if (state === "deleted") await writer.pause(...observationMs);
      settled = outcome.kind !== "unknown" && state !== "deleted";
    }
    remove();
  }
}
