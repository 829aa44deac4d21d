import { expect, it } from "vitest";
import { succeed } from "../../support/calls.js";
import { openFileService, openFileSql } from "../../support/file-service.js";

const dayMs = 24 * 60 * 60 * 1_000;

// One service: a second one would remove the other rows while the first removes these.
const { app, origin, key, workspaceId } = await openFileService({ sweepIntervalMs: 100, metricsPort: 0 });
const sql = openFileSql(app.databaseUrl);

it("rows that expire as fast as they are removed do not keep other rows from being removed", async () => {
  const { roleId } = await succeed<{ roleId: string }>(origin, "permissions.createRole", key, { name: "former" });
  await succeed(origin, "permissions.deleteRole", key, { role: roleId });
  // More than one batch of expired counts, and each one that is removed is stored again.
  await sql.unsafe(`
    create function store_again() returns trigger language plpgsql as $$
      begin insert into verification_counts values (old.*); return null; end $$;
    create trigger store_again after delete on verification_counts for each row execute function store_again();`);
  await sql`
    insert into verification_counts (resource_id, tag, hour, workspace_id, valid, rate_limited, usage_exceeded,
      insufficient_permissions, disabled, expired)
    select 'key_' || n, '', date_trunc('hour', now()) - interval '100 days', ${workspaceId}, 1, 0, 0, 0, 0, 0
    from generate_series(1, 600) as n`;
  await app.advance(2 * dayMs);
  const rolesLeft = async () => (await sql`select from roles where role_id = ${roleId}`).length;
  await expect.poll(rolesLeft, { timeout: 40_000 }).toBe(0);
}, 60_000);
