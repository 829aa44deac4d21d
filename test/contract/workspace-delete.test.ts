import { createHash, randomBytes } from "node:crypto";
import { describe, expect } from "vitest";
import { operatorKey } from "../support/harness.js";
import { keyOperations, operationOf } from "../support/operations.js";
import { allProtocols, openContract } from "./cases.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract(allProtocols);

async function disable({ ok, home: { workspaceId } }: Scene): Promise<void> {
  await ok("disableWorkspace", operatorKey, { workspaceId, reason: "ACCOUNT_CLOSURE", note: "closed by Zoë" });
}

async function deleteHome(scene: Scene): Promise<void> {
  await disable(scene);
  expect(await scene.ok("deleteWorkspace", operatorKey, { workspaceId: scene.home.workspaceId })).toEqual({});
}

describe("deleteWorkspace", () => {
  everyProtocol("is refused while the workspace is enabled, and then changes nothing", async (scene) => {
    const { workspaceId, key } = scene.home;
    const before = await scene.ok("getWorkspace", operatorKey, { workspaceId });
    const { detail } = await scene.refused("data/workspace_enabled", "deleteWorkspace", operatorKey, { workspaceId });
    expect(detail).toContain("disableWorkspace");
    expect(await scene.ok("getWorkspace", operatorKey, { workspaceId })).toEqual(before);
    await scene.ok("listKeys", key);
    await disable(scene);
    await scene.ok("enableWorkspace", operatorKey, { workspaceId });
    await scene.refused("data/workspace_enabled", "deleteWorkspace", operatorKey, { workspaceId });
    await scene.ok("listKeys", key);
  });

  everyProtocol("ends every key of the workspace: each gets key_not_found from every operation", async (scene) => {
    const { key } = await scene.ok("createKey", scene.home.key, { scopes: ["*"] });
    const { key: disabled } = await scene.ok("createKey", scene.home.key, { scopes: ["*"], enabled: false });
    // An imported secret has another format, and was cached.
    const imported = randomBytes(24).toString("hex");
    const hash = createHash("sha256").update(imported).digest("base64");
    await scene.ok("migrateKeys", scene.home.key, { migrationId: "m", keys: [{ hash }] });
    expect(await scene.ok("verifyKey", key, { key: imported })).toMatchObject({ valid: true });
    await deleteHome(scene);
    const code = "authentication/key_not_found";
    for (const operation of keyOperations) {
      await scene.refused(code, operation, scene.home.key, operationOf(operation).wellFormed);
    }
    for (const credential of [key, disabled]) await scene.refused(code, "whoami", credential, { key: imported });
  });

  everyProtocol("is final: no operation finds the workspace, enables it or adds a key to it", async (scene) => {
    const { workspaceId } = scene.home;
    await deleteHome(scene);
    const code = "data/workspace_not_found";
    await scene.refused(code, "getWorkspace", operatorKey, { workspaceId });
    await scene.refused(code, "enableWorkspace", operatorKey, { workspaceId });
    await scene.refused(code, "disableWorkspace", operatorKey, { workspaceId, reason: "OWNER_REQUEST" });
    await scene.refused(code, "updateWorkspace", operatorKey, { workspaceId, name: "again" });
    await scene.refused(code, "createRootKey", operatorKey, { workspaceId });
    await scene.refused("authentication/key_not_found", "listKeys", scene.home.key);
  });

  everyProtocol("can be repeated: it succeeds again, and there is one event of it", async (scene) => {
    const { workspaceId } = scene.home;
    await deleteHome(scene);
    expect(await scene.ok("deleteWorkspace", operatorKey, { workspaceId })).toEqual({});
    expect(await scene.ok("deleteWorkspace", operatorKey, { workspaceId })).toEqual({});
    const events = await scene.ok("listAuditEvents", operatorKey, { workspaceId, resourceId: workspaceId });
    expect(events.map(({ type, actor }) => [type, actor])).toEqual([
      ["workspace.delete", "operator"],
      ["workspace.disable", "operator"],
      ["workspace.create", "operator"],
    ]);
    expect(events[0]).not.toHaveProperty("after");
  });

  everyProtocol("does not affect keys of another workspace, and leaves the list without it", async (scene) => {
    const other = await scene.newWorkspace();
    await deleteHome(scene);
    expect(await scene.ok("listKeys", other.key)).toHaveLength(1);
    // Not in the transcript: the list includes the workspaces of other tests.
    const ids: string[] = [];
    for (let cursor: string | undefined; ; ) {
      const page = await scene.protocol.call("listWorkspaces", operatorKey, cursor === undefined ? {} : { cursor });
      if (!page.ok) return expect.fail(page.detail);
      ids.push(...(page.data as { workspaceId: string }[]).map(({ workspaceId }) => workspaceId));
      cursor = page.pagination?.cursor;
      if (cursor === undefined) break;
    }
    expect(ids).toContain(other.workspaceId);
    expect(ids).not.toContain(scene.home.workspaceId);
  });
});
