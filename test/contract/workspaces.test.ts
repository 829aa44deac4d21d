import { describe, expect } from "vitest";
import { operatorKey } from "../support/harness.js";
import type { WorkspaceResponse } from "../support/responses.js";
import { allProtocols, openContract } from "./cases.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract(allProtocols);

const reasons = [
  "UNPAID_BILLING",
  "TERMS_VIOLATION",
  "OWNER_REQUEST",
  "SUSPICIOUS_ACTIVITY",
  "ACCOUNT_CLOSURE",
  "QUOTA_EXCEEDED",
  "OWNERSHIP_TRANSFER",
];

const unknownWorkspace = "ws_01jcz0000000000000000000zz";

describe("the operator's workspaces", () => {
  everyProtocol(
    "createWorkspace returns the id, the first key's id and the key's secret, and nothing else",
    async (scene) => {
      const created = await scene.ok("createWorkspace", operatorKey, { name: "Zoë & Söhne" });
      expect(created).toEqual({
        workspaceId: expect.stringMatching(/^ws_[0-9a-z]{26}$/),
        keyId: expect.stringMatching(/^key_[0-9a-z]{26}$/),
        key: expect.stringMatching(/^lk_[0-9A-Za-z]{39}$/),
      });
    },
  );

  everyProtocol("a new workspace is enabled, has its name and no disabled reason", async (scene) => {
    const before = scene.clock.now();
    const { workspaceId } = await scene.ok("createWorkspace", operatorKey, { name: "Zoë & Söhne" });
    const workspace = await scene.ok("getWorkspace", operatorKey, { workspaceId });
    expect(workspace).toEqual({ workspaceId, name: "Zoë & Söhne", enabled: true, createdAt: expect.any(Number) });
    expect(workspace.createdAt).toBeGreaterThanOrEqual(before);
    expect(workspace.createdAt).toBeLessThanOrEqual(scene.clock.now());
  });

  everyProtocol("two workspaces may have the same name", async (scene) => {
    const { workspaceId } = await scene.newWorkspace();
    const other = await scene.newWorkspace();
    expect(other.workspaceId).not.toBe(workspaceId);
  });

  everyProtocol("the list returns a workspace as getWorkspace does, enabled or disabled", async (scene) => {
    const { workspaceId } = scene.home;
    const disabled = await scene.newWorkspace();
    await scene.ok("disableWorkspace", operatorKey, { workspaceId: disabled.workspaceId, reason: "OWNER_REQUEST" });
    const listed = await listAll(scene);
    for (const id of [workspaceId, disabled.workspaceId]) {
      const workspace = await scene.ok("getWorkspace", operatorKey, { workspaceId: id });
      expect(listed.filter((entry) => entry.workspaceId === id)).toEqual([workspace]);
    }
  });

  for (const reason of reasons) {
    everyProtocol(
      `a workspace can be disabled for the reason ${reason}, and returns the reason until it is enabled`,
      async (scene) => {
        const { workspaceId } = scene.home;
        const before = scene.clock.now();
        const disabled = await scene.ok("disableWorkspace", operatorKey, { workspaceId, reason });
        expect(disabled).toEqual({
          workspaceId,
          name: "acme",
          enabled: false,
          disabledReason: reason,
          disabledAt: expect.any(Number),
          createdAt: expect.any(Number),
        });
        expect(disabled.disabledAt).toBeGreaterThanOrEqual(before);
        expect(await scene.ok("getWorkspace", operatorKey, { workspaceId })).toEqual(disabled);

        const { createdAt } = disabled;
        const enabled = await scene.ok("enableWorkspace", operatorKey, { workspaceId });
        expect(enabled).toEqual({ workspaceId, name: "acme", enabled: true, createdAt });
        expect(await scene.ok("getWorkspace", operatorKey, { workspaceId })).toEqual(enabled);
      },
    );
  }

  everyProtocol("the operator's note is stored and cleared together with the reason", async (scene) => {
    const { workspaceId } = scene.home;
    const note = "invoice 2024-118, “third reminder” ✉️";
    const request = { workspaceId, reason: "UNPAID_BILLING", note };
    expect(await scene.ok("disableWorkspace", operatorKey, request)).toMatchObject({ disabledNote: note });
    expect(await scene.ok("getWorkspace", operatorKey, { workspaceId })).toMatchObject({ disabledNote: note });
    expect(await scene.ok("enableWorkspace", operatorKey, { workspaceId })).not.toHaveProperty("disabledNote");
  });

  everyProtocol("disabling twice is the same as once, and keeps the first disabledAt", async (scene) => {
    const request = { workspaceId: scene.home.workspaceId, reason: "QUOTA_EXCEEDED", note: "over by far" };
    const first = await scene.ok("disableWorkspace", operatorKey, request);
    await scene.clock.advance(1000);
    expect(await scene.ok("disableWorkspace", operatorKey, request)).toEqual(first);
    await scene.refused("authorization/workspace_disabled", "listKeys", scene.home.key);
  });

  everyProtocol("enabling an enabled workspace changes nothing", async (scene) => {
    const { workspaceId } = scene.home;
    const before = await scene.ok("getWorkspace", operatorKey, { workspaceId });
    expect(await scene.ok("enableWorkspace", operatorKey, { workspaceId })).toEqual(before);
    expect(await scene.ok("enableWorkspace", operatorKey, { workspaceId })).toEqual(before);
    await scene.ok("listKeys", scene.home.key);
  });

  everyProtocol("updateWorkspace changes the name, also of a disabled workspace, and nothing else", async (scene) => {
    const { workspaceId } = scene.home;
    const before = await scene.ok("getWorkspace", operatorKey, { workspaceId });
    const renamed = await scene.ok("updateWorkspace", operatorKey, { workspaceId, name: "Zoë & Söhne" });
    expect(renamed).toEqual({ ...before, name: "Zoë & Söhne" });
    expect(await scene.ok("getWorkspace", operatorKey, { workspaceId })).toEqual(renamed);
    const disabled = await scene.ok("disableWorkspace", operatorKey, { workspaceId, reason: "OWNER_REQUEST" });
    expect(await scene.ok("updateWorkspace", operatorKey, { workspaceId, name: "acme" })).toEqual({
      ...disabled,
      name: "acme",
    });
  });

  everyProtocol("updateWorkspace without a name, or with the present one, changes nothing", async (scene) => {
    const { workspaceId } = scene.home;
    const before = await scene.ok("getWorkspace", operatorKey, { workspaceId });
    expect(await scene.ok("updateWorkspace", operatorKey, { workspaceId })).toEqual(before);
    expect(await scene.ok("updateWorkspace", operatorKey, { workspaceId, name: before.name })).toEqual(before);
    const events = await scene.ok("listAuditEvents", operatorKey, { workspaceId, resourceId: workspaceId });
    expect(events.map(({ type }) => type)).toEqual(["workspace.create"]);
  });

  for (const operation of [
    "getWorkspace",
    "disableWorkspace",
    "enableWorkspace",
    "updateWorkspace",
    "deleteWorkspace",
  ] as const) {
    everyProtocol(
      `${operation} of a workspace that does not exist is refused with workspace_not_found`,
      async (scene) => {
        const more = operation === "disableWorkspace" ? { reason: "OWNER_REQUEST" } : {};
        const code = "data/workspace_not_found";
        await scene.refused(code, operation, operatorKey, { workspaceId: unknownWorkspace, ...more });
        await scene.refused(code, operation, operatorKey, { workspaceId: "no id at all", ...more });
        const shouted = scene.home.workspaceId.toUpperCase();
        await scene.refused(code, operation, operatorKey, { workspaceId: shouted, ...more });
      },
    );
  }
});

/** Reads all pages without recording them in the transcript: the list includes the workspaces of other tests. */
async function listAll({ protocol }: Scene): Promise<WorkspaceResponse[]> {
  const all: WorkspaceResponse[] = [];
  let cursor: string | undefined;
  do {
    const outcome = await protocol.call("listWorkspaces", operatorKey, cursor === undefined ? {} : { cursor });
    if (!outcome.ok) return expect.fail(outcome.detail);
    all.push(...(outcome.data as WorkspaceResponse[]));
    cursor = outcome.pagination?.cursor;
  } while (cursor !== undefined);
  return all;
}
