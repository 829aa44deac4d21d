import { prepare } from "../../support/clients/low-cost/request.js";
import { pauseBetweenWrites, retryUntilAcknowledged } from "./life.js";
import type { Population } from "./population.js";
import { type WorkspaceSubject, workspaceSubject } from "./subjects.js";
import type { Writer } from "./writer.js";

/** Creates a workspace with its first key. Undefined when the round is over. */
export async function createWorkspace(writer: Writer, operatorKey: string): Promise<WorkspaceSubject | undefined> {
  const created = await writer.create(prepare("createWorkspace", operatorKey, { name: "faults" }));
  return created && workspaceSubject(`${created["workspaceId"]}`, `${created["keyId"]}`, `${created["key"]}`);
}

/** Creates workspaces one after the other, and disables and enables each until an outcome is unknown. */
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
    };
    for (let state: keyof typeof requests = "enabled", settled = true; settled && writer.writing(); ) {
      await pauseBetweenWrites(writer);
      const next: keyof typeof requests = state === "enabled" ? "disabled" : "enabled";
      const request = requests[next];
      const outcome = await writer.write(subject, "workspace", next, request);
      if (outcome.kind === "acknowledged") state = next;
      settled = outcome.kind !== "unknown";
      if (!settled) await retryUntilAcknowledged(writer, () => writer.write(subject, "workspace", next, request));
    }
    remove();
  }
}
