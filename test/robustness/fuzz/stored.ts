import { openSql } from "../../../commands/open-sql.js";
import { findHalves } from "../../support/integrity.js";
import type { Entry, Ledger } from "./lane.js";

/** The events that an operation leaves when it is accepted, in their order. Those that are not here leave none. */
const leaves: Readonly<Record<string, RegExp>> = {
  createKey: /^(identity\.create )?key\.create$/,
  updateKey: /^((identity\.create )?key\.update)?$/,
  deleteKey: /^key\.delete$/,
  rerollKey: /^key\.create key\.reroll$/,
  createIdentity: /^identity\.create$/,
  updateIdentity: /^(identity\.update)?$/,
  deleteIdentity: /^identity\.delete$/,
  createRootKey: /^key\.create$/,
  createWorkspace: /^workspace\.create key\.create$/,
  disableWorkspace: /^(workspace\.disable)?$/,
  enableWorkspace: /^(workspace\.enable)?$/,
};
const nothing = /^$/;

/** Holds the database against what was answered: nothing refused has left a trace, and nothing is there in half. */
export async function findMisstored(databaseUrl: string, ledger: Ledger): Promise<string[]> {
  const sql = openSql(databaseUrl, { max: 1, onnotice: () => {} });
  try {
    const rows = await sql<{ requestId: string; types: string }[]>`
      select request_id as "requestId", string_agg(type, ' ' order by position) as types from audit_events
      group by request_id`;
    const left = new Map(rows.map(({ requestId, types }) => [requestId, types]));
    const unanswered = [...left.keys()].filter((id) => !ledger.has(id));
    return [
      ...unanswered.map((id) => `a change by ${id}, which was never answered`),
      ...[...ledger].flatMap(([id, entry]) => misled(entry, left.get(id) ?? "")),
      ...(await findHalves(sql)),
    ];
  } finally {
    await sql.end();
  }
}

/** What is wrong with the events of a request, if anything is. */
function misled({ operation, accepted, told }: Entry, types: string): string[] {
  const whole = leaves[operation] ?? nothing;
  // Whether it took effect is not known of every one; then it has left nothing, or all.
  const isRight = accepted ? whole.test(types) : types === "" || (accepted === undefined && whole.test(types));
  const ending = accepted ? "accepted" : accepted === false ? "refused" : "not answered for";
  return isRight ? [] : [`was ${ending}, and has left ${types || "no event"}: ${told()}`];
}
