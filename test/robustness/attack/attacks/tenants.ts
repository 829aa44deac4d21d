import { setTimeout as sleep } from "node:timers/promises";
import { type Attack, outcomeOf } from "../attack.js";
import type { AttackContext } from "../site.js";
import { operatorKey, type Target, type Tenant } from "../target.js";

/** The median latency of each operation of other callers, in milliseconds. Undefined for one that failed. */
type Times = Readonly<Record<string, number | undefined>>;

/**
 * Measures the operations that must work during the attack: the operator disables the attacker, another tenant revokes
 * and lists.
 */
async function timeOthers(target: Target, attacker: Tenant, other: Tenant): Promise<Times> {
  const operations: Readonly<Record<string, () => Promise<{ status: number }>>> = {
    "another tenant's listKeys": () => target.call("keys.listKeys", other.key),
    "another tenant's disable": () => target.call("keys.updateKey", other.key, { keyId: victim.keyId, enabled: false }),
    "the operator's disableWorkspace": () =>
      target.call("workspaces.disableWorkspace", operatorKey, {
        workspaceId: attacker.workspaceId,
        reason: "SUSPICIOUS_ACTIVITY",
      }),
    "the operator's enableWorkspace": () =>
      target.call("workspaces.enableWorkspace", operatorKey, { workspaceId: attacker.workspaceId }),
  };
  const { data: victim } = await target.call("keys.createKey", other.key, { name: "victim" });
  const samples: Record<string, (number | undefined)[]> = {};
  for (let round = 0; round < 5; round++) {
    for (const [name, operation] of Object.entries(operations)) {
      const startedAt = performance.now();
      const { status } = await operation();
      samples[name] = [...(samples[name] ?? []), status === 200 ? performance.now() - startedAt : undefined];
    }
  }
  return Object.fromEntries(Object.entries(samples).map(([name, times]) => [name, medianOf(times)]));
}

function medianOf(times: readonly (number | undefined)[]): number | undefined {
  if (times.includes(undefined)) return undefined;
  return (times as number[]).toSorted((one, other) => one - other)[Math.floor(times.length / 2)];
}

/**
 * Twice the normal latency, or one lease more for operations of a few milliseconds. That tolerates a busy machine, but
 * no queue.
 */
const allowance = { times: 2, ms: 250 };

async function compare(
  context: AttackContext,
  target: Target,
  attack: (tenant: Tenant) => Promise<unknown>,
  tenant: Tenant,
  description: string,
) {
  const other = await target.createTenant();
  const normal = await timeOthers(target, tenant, other);
  let attacking = true;
  const attackers = Promise.all(
    Array.from({ length: 16 }, async () => {
      while (attacking) await attack(tenant).catch(() => sleep(100));
    }),
  );
  context.addCleanup(() => {
    attacking = false;
  });
  await sleep(1_000);
  const attacked = await timeOthers(target, tenant, other);
  attacking = false;
  await Promise.race([attackers, sleep(15_000)]);
  const inTime = Object.entries(normal).map(([name, before]) => {
    const during = attacked[name];
    const isInTime =
      before !== undefined &&
      during !== undefined &&
      during <= Math.max(allowance.times * before, before + allowance.ms);
    const latency = during === undefined ? "failed" : `${during.toFixed(0)} ms`;
    const text = `${name} ${latency} (normally ${before?.toFixed(0)} ms)`;
    return [isInTime, text] as const;
  });
  return outcomeOf(
    { "in time": inTime.every(([isInTime]) => isInTime) },
    `${description}: ${inTime.map(([, text]) => text).join(", ")}`,
  );
}

export const slowSearches: Attack = {
  name: "slow-searches",
  title: "one tenant's searches take all PostgreSQL connections",
  async run(context) {
    const target = await context.start();
    const tenant = await target.createTenant();
    await target.sql()`
      insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
      select 'id_' || lpad(to_hex(n), 26, '0'), ${tenant.workspaceId}, lpad(n::text, 254, 'ab'), '{}', now(), now()
      from generate_series(1, 300000) as n`;
    await target.sql()`analyze identities`;
    const search = (tenant: Tenant) => target.call("identities.listIdentities", tenant.key, { search: "abababx" });
    return compare(context, target, search, tenant, "16 concurrent searches in 300,000 identities");
  },
};

export const largeIdentities: Attack = {
  name: "large-identities",
  title: "deleting identities with many keys delays the revocations of other tenants",
  async run(context) {
    const target = await context.start();
    const tenant = await target.createTenant();
    const sql = target.sql();
    const identities = Array.from({ length: 24 }, (_, index) => `large_${index}`);
    for (const externalId of identities) await target.call("identities.createIdentity", tenant.key, { externalId });
    // The hash of each key is unique: the SHA-256 of its number.
    await sql`
      insert into keys (key_id, workspace_id, hash, start, enabled, permissions, identity_id, created_at, updated_at)
      select 'key_' || lpad(to_hex(n), 26, '0'), workspace_id, sha256(n::text::bytea), 'lk_0000', true, '{}',
        identity_id, now(), now()
      from generate_series(1, 240000) as n
        join (select *, row_number() over () as number from identities) as owners on owners.number = n % 24 + 1`;
    await sql`analyze keys`;
    let deleted = 0;
    /** The attackers delete one identity after the other, at most five a second: enough for as long as others are measured. */
    let beginMs: number | undefined;
    let next = 0;
    const remove = async ({ key }: Tenant) => {
      beginMs ??= performance.now();
      const number = next++;
      const externalId = identities[number];
      if (externalId === undefined) return sleep(50);
      await sleep(Math.max(0, beginMs + number * 200 - performance.now()));
      const { status } = await target.call("identities.deleteIdentity", key, { externalId });
      if (status === 200) deleted += 1;
    };
    const outcome = await compare(context, target, remove, tenant, "deletes of 24 identities with 10,000 keys each");
    const [left] =
      await sql`select count(*)::int as count from keys where workspace_id = ${tenant.workspaceId} and deleted_at is null`;
    return outcomeOf(
      {
        ...(outcome.withstood ? {} : { "in time": false }),
        // While its own workspace is disabled, the attacker is refused.
        deleted: deleted >= 5,
        "keys kept": left?.["count"] >= 240_000,
      },
      `${outcome.observed}; ${deleted} deleted`,
    );
  },
};

export const endlessGrowth: Attack = {
  name: "endless-growth",
  title: "one tenant fills the disk of the database",
  async run(context) {
    const target = await context.start({ env: { QUOTA_KEYS: "20", QUOTA_IDENTITIES: "20", QUOTA_STORED_MB: "1" } });
    const [keys, identities, bytes] = await Promise.all([1, 2, 3].map(() => target.createTenant()));
    if (!keys || !identities || !bytes) throw new Error("no tenants");
    const repeat = async (times: number, operation: (index: number) => Promise<{ error: string | undefined }>) => {
      for (let index = 0; index < times; index++) {
        const { error } = await operation(index);
        if (error !== undefined) return `${error} after ${index}`;
      }
      return `no error in ${times}`;
    };
    const { data: victim } = await target.call("keys.createKey", bytes.key, { name: "victim" });
    const observed = {
      keys: await repeat(40, () => target.call("keys.createKey", keys.key, {})),
      identities: await repeat(40, (n) =>
        target.call("identities.createIdentity", identities.key, { externalId: `u${n}` }),
      ),
      bytes: await repeat(200, (n) =>
        target.call("keys.updateKey", bytes.key, {
          keyId: victim.keyId,
          meta: { text: `${n}`.repeat(15_000 / `${n}`.length) },
        }),
      ),
    };
    const revoked = await target.call("keys.deleteKey", bytes.key, { keyId: victim.keyId });
    return outcomeOf(
      {
        "quotas enforced": Object.values(observed).every((text) => text.startsWith("limits/quota_exceeded")),
        "revocation possible at the quota": revoked.status === 200,
      },
      `${Object.entries(observed)
        .map(([name, text]) => `${name}: ${text}`)
        .join("; ")}; deleteKey then: ${revoked.status}`,
    );
  },
};
