import { describe, expect } from "vitest";
import { operatorKey } from "../harness.js";
import { openContract } from "./cases.js";
import { keyOperations, operationOf, operatorOperations } from "./operations.js";

const { everyDoor } = openContract();
const code = "authorization/insufficient_permissions";

describe("who may call what", () => {
  for (const operation of keyOperations) {
    const { permission = "", alsoOperator, wellFormed, malformed, inNewWorkspace = true } = operationOf(operation);
    const [resource] = permission.split(".");

    everyDoor(`${operation} is refused to a key without permissions, whatever the body`, async (scene) => {
      const { key } = await scene.ok("createKey", scene.home.key, {});
      for (const request of [wellFormed, malformed]) {
        const { fields } = await scene.refused(code, operation, key, request);
        expect(fields).toBeUndefined();
      }
    });

    everyDoor(`${operation} is refused to a key with every permission but ${permission}`, async (scene) => {
      const all = keyOperations.flatMap((name) => operationOf(name).permission ?? []);
      const others = [...new Set(all)].filter((name) => name !== permission);
      const lookalikes = [
        resource,
        `${permission}.more`,
        `${permission}.*`,
        permission.toUpperCase(),
        `x${permission}`,
      ];
      const { key } = await scene.ok("createKey", scene.home.key, { permissions: [...others, ...lookalikes] });
      await scene.refused(code, operation, key, wellFormed);
    });

    for (const held of [permission, `${resource}.*`, "*"]) {
      everyDoor(`${operation} is open to a key that holds ${held}`, async (scene) => {
        const { key } = await scene.ok("createKey", scene.home.key, { permissions: [held] });
        await scene.refused("application/invalid_input", operation, key, malformed);
        const outcome = await scene.call(operation, key, wellFormed);
        expect(outcome.ok || outcome.code).toBe(inNewWorkspace);
      });
    }

    if (alsoOperator) continue;
    everyDoor(`${operation} is refused to the operator, who is no key of a workspace`, async (scene) => {
      for (const request of [wellFormed, malformed]) await scene.refused(code, operation, operatorKey, request);
    });
  }

  for (const operation of operatorOperations) {
    everyDoor(`${operation} is refused to every key, also one with all permissions`, async (scene) => {
      const permissions = ["workspaces.*", "operator"];
      const { key } = await scene.ok("createKey", scene.home.key, { permissions });
      const { wellFormed, malformed } = operationOf(operation);
      for (const request of [wellFormed, malformed]) {
        await scene.refused(code, operation, scene.home.key, request);
        await scene.refused(code, operation, key, request);
      }
    });
  }
});
