import fc from "fast-check";
import { beforeEach, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { type AuditEventResponse, allEvents, succeed, walk } from "../../support/calls.js";
import { createWorkspace, expectSuccess, post } from "../../support/clients/http-requests.js";
import { openFileApp } from "../../support/file-service.js";

let workspaceId: string;
let key: string;
let keyIds: string[];

const app = await openFileApp();
const origin = app.httpUrl;
beforeEach(async () => {
  ({ workspaceId, key } = await createWorkspace(origin));
  keyIds = [];
  for (let i = 0; i < 6; i++) keyIds.push((await succeed<{ keyId: string }>(origin, "keys.createKey", key, {})).keyId);
});

/** An operation. `ofKey` chooses one of the keys that exist when the operation starts. */
interface Operation {
  readonly name: string;
  readonly ofKey?: number;
  readonly body: object;
}

const owner = fc.constantFrom("a", "b", "c").map((externalId) => ({ externalId }));
const settings = fc.oneof(
  owner,
  owner,
  fc.constant({ externalId: null }),
  fc.boolean().map((enabled) => ({ enabled })),
  fc.nat(99).map((number) => ({ name: `name_${number}` })),
  fc.subarray(["keys.read", "keys.*", "audit.read"]).map((scopes) => ({ scopes })),
  fc.subarray(["keys.read", "keys.*", "documents.read"]).map((permissions) => ({ permissions })),
  fc.nat(99).map((number) => ({ meta: { number } })),
  fc.constant({ expires: null }),
);
const onKey = (name: string, body: fc.Arbitrary<object>) =>
  fc.record({ name: fc.constant(name), ofKey: fc.nat(), body });
const on = (name: string, body: fc.Arbitrary<object>) => fc.record({ name: fc.constant(name), body });
const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 8, arbitrary: onKey("keys.updateKey", settings) },
  { weight: 1, arbitrary: onKey("keys.deleteKey", fc.constant({})) },
  { weight: 3, arbitrary: onKey("keys.rerollKey", fc.constantFrom({ expiration: 0 }, { expiration: 600_000 })) },
  { weight: 2, arbitrary: on("keys.createKey", owner) },
  { weight: 1, arbitrary: on("identities.createIdentity", owner) },
  {
    weight: 2,
    arbitrary: on(
      "identities.updateIdentity",
      fc.tuple(owner, fc.nat(9)).map(([reference, n]) => ({ ...reference, meta: { n } })),
    ),
  },
  { weight: 4, arbitrary: on("identities.deleteIdentity", owner) },
);

/** Runs the operations with this concurrency. Returns the outcome of each. */
async function run(operations: readonly Operation[], concurrency: number): Promise<string[]> {
  const waiting = [...operations];
  const outcomes: string[] = [];
  const work = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const { name, ofKey, body } = next;
      const keyId = ofKey === undefined ? undefined : keyIds[ofKey % keyIds.length];
      const { status, text } = await post(origin, `/v2/${name}`, key, { keyId, ...body });
      const data = status === 200 ? JSON.parse(text).data : {};
      if (name === "keys.createKey" || name === "keys.rerollKey") keyIds.push(...(data.keyId ? [data.keyId] : []));
      outcomes.push(`${name} ${status}`);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, work));
  return outcomes;
}

type State = Readonly<Record<string, unknown>>;

/** Replays the events, oldest first. Each must start from the state that the last one left. Returns the final state. */
function replay(events: readonly AuditEventResponse[]): Map<string, State> {
  const present = new Map<string, State>();
  for (const { type, resourceId, before, after } of events) {
    expect(before, `before ${type} of ${resourceId}`).toEqual(present.get(resourceId));
    if (after !== undefined) present.set(resourceId, after);
    else present.delete(resourceId);
    // The event of a deleted identity also covers its removal from the keys; they have no event of their own.
    if (type !== "identity.delete") continue;
    for (const [id, state] of present) {
      if (state["identityId"] === resourceId) present.set(id, { ...state, identityId: null });
    }
  }
  return present;
}

interface KeyResponse {
  readonly keyId: string;
  readonly identity?: { readonly identityId: string };
  readonly [setting: string]: unknown;
}

/** Converts a key of a response into the form of the audit log. */
function toAuditState({
  start,
  name = null,
  enabled,
  scopes,
  permissions,
  identity,
  meta = null,
  expires = null,
}: KeyResponse): State {
  const unused = { roles: [], apiId: null, ratelimits: [], migrationId: null };
  const identityId = identity?.identityId ?? null;
  return { start, name, enabled, scopes, permissions, identityId, meta, expires, ...unused };
}

describe("concurrent changes of the same keys and identities", () => {
  it("succeed or are refused, and their audit events replay to the final state", async () => {
    const operations = fc.array(operation, { minLength: 200, maxLength: 200 });
    const property = fc.asyncProperty(operations, async (all) => {
      const outcomes = await run(all, 16);
      expect(outcomes.filter((outcome) => !/ (200|404|409)$/.test(outcome))).toEqual([]);

      const events = (await allEvents(origin)).filter((event) => event.workspaceId === workspaceId).reverse();
      const replayed = replay(events);
      const keys = await walk<KeyResponse>(origin, "keys.listKeys", key, {});
      const ofKind = (prefix: string) => new Map([...replayed].filter(([id]) => id.startsWith(prefix)));
      expect(new Map(keys.map((each) => [each.keyId, toAuditState(each)]))).toEqual(ofKind("key_"));
      const identities = await walk<Record<string, unknown>>(origin, "identities.listIdentities", key, {});
      const present = identities.map(
        ({ identityId, externalId, meta, ratelimits }) => [identityId, { externalId, meta, ratelimits }] as const,
      );
      expect(new Map(present)).toEqual(ofKind("id_"));
    });
    await fc.assert(property, { numRuns: 1, endOnFailure: true });
  });

  it("create a key for an externalId even if its identity is deleted at the same time", async () => {
    const owned = { externalId: "contended" };
    await succeed(origin, "identities.createIdentity", key, owned);
    const sql = openSql(app.databaseUrl, { max: 2, onnotice: () => {} });
    const blocked = async () => {
      const rows = await sql`select from pg_locks where not granted and pid in
        (select pid from pg_stat_activity where datname = current_database())`;
      return rows.length;
    };
    try {
      // As a deletion does: it locks the identity, which stays visible until the transaction commits.
      const creating = await sql.begin(async (deletion) => {
        await deletion`select from identities where workspace_id = ${workspaceId} for update`;
        const response = post(origin, "/v2/keys.createKey", key, owned);
        await expect.poll(blocked, { timeout: 5_000, interval: 20 }).toBeGreaterThan(0);
        await deletion`delete from identities where workspace_id = ${workspaceId}`;
        return { response };
      });
      const { keyId } = expectSuccess(await creating.response) as { keyId: string };
      const created = await succeed<KeyResponse>(origin, "keys.getKey", key, { keyId });
      expect(created.identity).toMatchObject(owned);
    } finally {
      await sql.end();
    }
  });

  it("create an identity exactly once; the other creations get 409", async () => {
    const creation = { name: "identities.createIdentity", body: { externalId: "one" } };
    const outcomes = await run(
      Array.from({ length: 32 }, () => creation),
      16,
    );
    expect(outcomes.filter((outcome) => outcome.endsWith(" 200"))).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome.endsWith(" 409"))).toHaveLength(31);
  });
});
