import { openSql } from "../../../commands/open-sql.js";
import { findPartialChanges } from "../../support/integrity.js";
import type { Entry, Ledger } from "./worker.js";

/** The audit events of each accepted operation, in order. Other operations have none. */
const expectedEvents: Readonly<Record<string, RegExp>> = {
  createKey: /^(identity\.create )?key\.create( key\.updateCredits)?$/,
  updateKey: /^((identity\.create )?key\.update)?( ?key\.updateCredits)?$/,
  deleteKey: /^key\.delete$/,
  rerollKey: /^key\.create( key\.updateCredits)? key\.reroll$/,
  updateCredits: /^(key\.updateCredits)?$/,
  addPermissions: /^(key\.update)?$/,
  removePermissions: /^(key\.update)?$/,
  setPermissions: /^(key\.update)?$/,
  addRoles: /^(key\.update)?$/,
  removeRoles: /^(key\.update)?$/,
  setRoles: /^(key\.update)?$/,
  migrateKeys: /^((identity\.create )*key\.create( key\.create)*( key\.updateCredits)*)?$/,
  createApi: /^api\.create$/,
  deleteApi: /^api\.delete$/,
  createPermission: /^permission\.create$/,
  deletePermission: /^permission\.delete$/,
  createRole: /^role\.create$/,
  setRolePermissions: /^(role\.update)?$/,
  deleteRole: /^role\.delete$/,
  setOverride: /^(override\.(create|update))?$/,
  deleteOverride: /^override\.delete$/,
  createIdentity: /^identity\.create$/,
  updateIdentity: /^(identity\.update)?$/,
  deleteIdentity: /^identity\.delete$/,
  createRootKey: /^key\.create$/,
  createWorkspace: /^workspace\.create key\.create$/,
  disableWorkspace: /^(workspace\.disable)?$/,
  enableWorkspace: /^(workspace\.enable)?$/,
  updateWorkspace: /^(workspace\.update)?$/,
  deleteWorkspace: /^(workspace\.delete)?$/,
};
const noEvents = /^$/;

/** Compares the database with the responses: a refused request changed nothing, and no change is partial. */
export async function findMisstored(databaseUrl: string, ledger: Ledger): Promise<string[]> {
  const sql = openSql(databaseUrl, { max: 1, onnotice: () => {} });
  try {
    const rows = await sql<{ requestId: string; types: string }[]>`
      select request_id as "requestId", string_agg(type, ' ' order by position) as types from audit_events
      -- The service itself deletes the keys of a deleted API, later.
      where actor <> 'service' group by request_id`;
    const eventsByRequest = new Map(rows.map(({ requestId, types }) => [requestId, types]));
    const unanswered = [...eventsByRequest.keys()].filter((id) => !ledger.has(id));
    return [
      ...unanswered.map((id) => `a change by ${id}, which has no response`),
      ...[...ledger].flatMap(([id, entry]) => wrongEvents(entry, eventsByRequest.get(id) ?? "")),
      ...(await findPartialChanges(sql)),
    ];
  } finally {
    await sql.end();
  }
}

/** An error if the events of a request do not match its response. */
function wrongEvents({ operation, accepted, describe }: Entry, types: string): string[] {
  const expected = expectedEvents[operation] ?? noEvents;
  // If it is unknown whether the request took effect, either no events or all of them are correct.
  const isCorrect = accepted ? expected.test(types) : types === "" || (accepted === undefined && expected.test(types));
  const result = accepted ? "accepted" : accepted === false ? "refused" : "of unknown result";
  return isCorrect ? [] : [`was ${result}, but has the audit events ${types || "(none)"}: ${describe()}`];
}
