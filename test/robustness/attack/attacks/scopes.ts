import { type Attack, outcomeOf } from "../attack.js";

const operationsOfKeys = [
  ...["keys.listKeys", "keys.createKey", "keys.migrateKeys", "keys.updateCredits", "identities.listIdentities"],
  ...["apis.listApis", "permissions.listRoles", "permissions.createRole", "ratelimit.limit", "ratelimit.setOverride"],
];

export const borrowedNames: Attack = {
  name: "borrowed-names",
  title: "a key with a permission or a role that is named like a scope manages the workspace",
  async run(context) {
    const target = await context.start();
    const { key } = await target.createTenant();
    const served: string[] = [];
    for (const permissions of [["*"], ["keys.read"], ["keys.*", "identities.*", "apis.*", "roles.*", "ratelimit.*"]]) {
      const name = `role with ${permissions}`;
      await target.call("permissions.createRole", key, { name, permissions });
      for (const grant of [{ permissions }, { roles: [name] }]) {
        const { data: customer, status } = await target.call("keys.createKey", key, grant);
        if (status !== 200) continue; // a refused permission cannot be abused
        for (const operation of operationsOfKeys) {
          const reply = await target.call(operation, customer.key);
          if (reply.error !== "authorization/insufficient_permissions") {
            served.push(`${operation} by ${JSON.stringify(grant)}`);
          }
        }
      }
    }
    return outcomeOf(
      { "all refused": served.length === 0 },
      served.length === 0 ? "all refused" : `served: ${served.join(", ")}`,
    );
  },
};

export const outlivingExpiry: Attack = {
  name: "outliving-expiry",
  title: "a key that expires extends its own expiry or creates a key that outlives it",
  async run(context) {
    const target = await context.start();
    const { key } = await target.createTenant();
    const expires = Date.now() + 3_600_000;
    const { data: expiring } = await target.call("keys.createKey", key, { scopes: ["*"], expires });
    const { data: other } = await target.call("keys.createKey", key, { scopes: ["*"], enabled: false });
    const { data: plain } = await target.call("keys.createKey", key, {});
    const call = (operation: string, body: unknown) => target.call(operation, expiring.key, body);
    const attempts = {
      "removes its expiry": await call("keys.updateKey", { keyId: expiring.keyId, expires: null }),
      "postpones its expiry": await call("keys.updateKey", { keyId: expiring.keyId, expires: expires + 1_000 }),
      "creates a key without expiry": await call("keys.createKey", { scopes: ["*"] }),
      "creates a key with a later expiry": await call("keys.createKey", {
        scopes: ["keys.read"],
        expires: expires + 1_000,
      }),
      "enables a key without expiry": await call("keys.updateKey", { keyId: other.keyId, enabled: true }),
      "grants scopes to a key without expiry": await call("keys.updateKey", {
        keyId: plain.keyId,
        scopes: ["keys.read"],
      }),
      "rerolls a key without expiry": await call("keys.rerollKey", { keyId: other.keyId, expiration: 0 }),
    };
    const succeeded = Object.entries(attempts).flatMap(([name, { status }]) => (status === 200 ? [name] : []));
    return outcomeOf(
      { "all refused": succeeded.length === 0 },
      succeeded.length === 0 ? "all refused" : succeeded.join(", "),
    );
  },
};

export const lockOut: Attack = {
  name: "lock-out",
  title: "a key with few scopes disables the only key with all scopes and locks the owner out of the workspace",
  async run(context) {
    const target = await context.start();
    const tenant = await target.createTenant();
    const { data: updater } = await target.call("keys.createKey", tenant.key, { scopes: ["keys.update"] });
    const { data: deleter } = await target.call("keys.createKey", tenant.key, { scopes: ["keys.delete"] });
    const { keyId } = tenant;
    const attempts = {
      disables: await target.call("keys.updateKey", updater.key, { keyId, enabled: false }),
      strips: await target.call("keys.updateKey", updater.key, { keyId, scopes: [] }),
      expires: await target.call("keys.updateKey", updater.key, { keyId, expires: Date.now() + 1_000 }),
      deletes: await target.call("keys.deleteKey", deleter.key, { keyId }),
    };
    const succeeded = Object.entries(attempts).flatMap(([name, { status }]) => (status === 200 ? [name] : []));
    await target.call("keys.deleteKey", tenant.key, { keyId });
    const root = await target
      .operate("workspaces.createRootKey", { workspaceId: tenant.workspaceId })
      .catch(() => undefined);
    const recovered = root?.["key"] ? await target.call("keys.listKeys", root["key"]) : undefined;
    const attempted = succeeded.length === 0 ? "all refused" : `succeeded: ${succeeded.join(", ")}`;
    return outcomeOf(
      { "all refused": succeeded.length === 0, "the operator can recover it": recovered?.status === 200 },
      `${attempted}; createRootKey: ${recovered?.status ?? "failed"}`,
    );
  },
};
