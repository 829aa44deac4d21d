import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type BehindProxy, openBehindProxy } from "../../support/behind-proxy.js";
import { post } from "../../support/clients/http-requests.js";

let service: BehindProxy;
beforeAll(async () => {
  service = await openBehindProxy();
});
afterAll(() => service.close());

/** The longest texts that a permission can have: four bytes for each character. */
const name = "🗝".repeat(255);
const description = "🔐".repeat(512);
const roles = 101;
const perRole = 100;

/** What the lease renewals of a slow machine may read meanwhile. */
const otherBytes = 200_000;

interface Role {
  readonly name: string;
  readonly permissions: readonly unknown[];
}

/** Stores roles with 100 permissions each, because thousands of calls would take too long. */
async function storeRoles(slugOf: (role: number, position: number) => string) {
  const { sql, workspaceId } = service;
  await sql`delete from roles`;
  await sql`delete from permissions`;
  const permissionsOf = (role: number) => Array.from({ length: perRole }, (_, position) => slugOf(role, position));
  const all = Array.from({ length: roles }, (_, role) => permissionsOf(role));
  const slugs = [...new Set(all.flat())];
  await sql`
    insert into permissions (permission_id, workspace_id, slug, name, description, created_at)
    select 'perm_7' || lpad(n::text, 25, '0'), ${workspaceId}, slug, ${name}, ${description}, now()
    from unnest(${slugs}::text[]) with ordinality as given (slug, n)`;
  await sql`
    insert into roles (role_id, workspace_id, name, permissions, created_at)
    select 'role_7' || lpad(n::text, 25, '0'), ${workspaceId}, 'role ' || n,
      array(select json_array_elements_text(permissions)), now()
    from json_array_elements(${JSON.stringify(all)}::text::json) with ordinality as given (permissions, n)`;
  return all;
}

/** Calls an operation; returns its response, the bytes of that, and the bytes that PostgreSQL sent meanwhile. */
async function measured<Data>(path: string, request: object) {
  const before = service.proxy.bytesFromBackend();
  const { status, text } = await post(service.app.httpUrl, path, service.key, request);
  const read = service.proxy.bytesFromBackend() - before;
  expect(status, text).toBe(200);
  const response: { data: Data; pagination?: { cursor?: string } } = JSON.parse(text);
  return { ...response, read, returned: Buffer.byteLength(text) };
}

describe("the service reads as much as it returns of roles with the longest permissions", () => {
  it.each([
    ["have the same permissions", (_role: number, position: number) => `p.${position}`],
    ["have different permissions", (role: number, position: number) => `p.${role}.${position}`],
  ])("that %s: listRoles", async (_what, slugOf) => {
    const stored = await storeRoles(slugOf);
    for (const filter of [{}, { search: "role" }]) {
      const listed: Role[] = [];
      for (let cursor: string | undefined; ; ) {
        const page = await measured<Role[]>("/v2/permissions.listRoles", { ...filter, ...(cursor && { cursor }) });
        expect(page.read).toBeLessThan(1.2 * page.returned + otherBytes);
        cursor = page.pagination?.cursor;
        listed.push(...page.data);
        if (cursor === undefined) break;
        // A role has 317 kB, and a page 4 MB.
        expect(page.data.length).toBe(12);
      }
      expect(listed.map((role) => role.name)).toEqual(stored.map((_, index) => `role ${index + 1}`));
      expect(listed.map(({ permissions }) => permissions)).toEqual(
        stored.map((slugs) => slugs.map((slug) => ({ id: expect.stringMatching(/^perm_7/), name, slug, description }))),
      );
    }
  });

  it("setRoles of a key", async () => {
    const stored = await storeRoles((role, position) => `p.${role}.${position}`);
    const { keyId } = (await measured<{ keyId: string }>("/v2/keys.createKey", {})).data;
    const names = Array.from({ length: 20 }, (_, index) => `role ${index + 1}`);
    const { data, read, returned } = await measured<Role[]>("/v2/keys.setRoles", { keyId, roles: names });
    expect(data.flatMap(({ permissions }) => permissions)).toHaveLength(20 * perRole);
    expect(data.find((role) => role.name === "role 2")?.permissions).toEqual(
      stored[1]?.map((slug) => ({ id: expect.stringMatching(/^perm_7/), name, slug })),
    );
    expect(read).toBeLessThan(1.2 * returned + otherBytes);
  });
});
