import { insist, pauseBetweenWrites } from "./life.js";
import type { Population } from "./population.js";
import { prepare } from "./request.js";
import { type WorkspaceSubject, workspaceSubject } from "./subjects.js";
import type { Writer } from "./writer.js";

/** A new workspace, with its first key. */
export async function createWorkspace(writer: Writer, operatorKey: string): Promise<WorkspaceSubject | undefined> {
  const made = await writer.create(prepare("createWorkspace", operatorKey, { name: "laboratory" }));
  return made && workspaceSubject(`${made["workspaceId"]}`, `${made["keyId"]}`, `${made["key"]}`);
}

/** Workspaces, one after the other, each disabled and enabled until it cannot be judged any more. */
export async function liveAsWorkspaces(writer: Writer, population: Population, operatorKey: string): Promise<void> {
  while (writer.writing()) {
    const workspace = await createWorkspace(writer, operatorKey);
    if (workspace === undefined) return;
    const { workspaceId, subject } = workspace;
    const leave = population.admit(workspace);
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
      if (!settled) await insist(writer, () => writer.write(subject, "workspace", next, request));
    }
    leave();
  }
}
