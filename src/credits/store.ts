import type { AuditFact } from "../audit/store.js";
import { errorCodeOf } from "../storage/postgres/connection.js";
import type { Database } from "../storage/postgres/database.js";
import { type Fragment, sql } from "../storage/postgres/sql.js";

/** The credits of a key, with the refill that is due. */
export interface Credits {
  readonly remaining: number;
  readonly refill?: Refill;
}

/** A periodic refill. */
export interface Refill {
  readonly interval: "daily" | "monthly";
  readonly amount: number;
  /** The day of the month; undefined for a daily refill. */
  readonly refillDay?: number;
}

/** How the credits of a key change. An undefined field stays as it is. */
export interface CreditsChanges {
  /** Needed for a key that has no credits yet. */
  readonly remaining?: RemainingChange;
  /** Null ends the refills. */
  readonly refill?: Refill | null;
}

/** How many credits are left after a change. */
export interface RemainingChange {
  readonly operation: "set" | "increment" | "decrement";
  readonly value: number;
}

/** The maximum of `remaining`. */
const maxRemaining = 1_000_000_000_000;

/** Credits to spend. */
export interface Spend {
  readonly keyId: string;
  readonly cost: number;
}

/** The outcome of a spend. */
export interface Spent {
  /** False if too few credits were left. */
  readonly spent: boolean;
  /** How many are left now. Undefined: the key needs no credits any more. */
  readonly remaining: number | undefined;
}

/** A row of spend_credits(). */
interface SpentRow {
  readonly keyId: string;
  /** Null: the row is about all spends of the key. */
  readonly place: number | null;
  readonly spent: boolean | null;
  readonly remaining: bigint | null;
}

export type CreditsStore = ReturnType<typeof createCreditsStore>;

/**
 * @param db connections that serve no other purpose: no statement of a call waits behind a spend, nor a spend behind one
 * @param deadline until when a spend that is decided now may begin, by the clock of the database; so may its retries
 */
export function createCreditsStore(db: Database, deadline: () => Date) {
  return {
    /**
     * Spends credits in one statement. The outcomes are in the order of the spends. Undefined: the row of the key is missing
     * or, without waiting, locked. Spends of one key are made in their order, each as a whole or not at all.
     *
     * The outcomes are durable when this resolves. If it rejects, spends may have been made, except after `isLockTimeout`
     * and `isTooLate`.
     *
     * @param lockWaitMs how long to wait for a locked row. 0: locked rows are left out
     */
    async spend(spends: readonly Spend[], lockWaitMs: number): Promise<(Spent | undefined)[]> {
      const places = placesByKey(spends);
      // One text each: joining hundreds of ids costs a fraction of quoting them as an array.
      const keyIds = [...places.keys()].join();
      const costs = [...places.values()].map((of) => of.map((place) => spends[place]?.cost).join(" ")).join();
      const rows = await db.runInBackground(
        sql<SpentRow[]>`
          select * from spend_credits(string_to_array(${keyIds}, ','), string_to_array(${costs}, ','), ${lockWaitMs},
            ${deadline()})`,
      );
      const outcomes = Array<Spent | undefined>(spends.length).fill(undefined);
      for (const { keyId, place, spent, remaining } of rows) {
        const of = places.get(keyId) as number[];
        const outcome =
          spent === null ? undefined : { spent, remaining: remaining === null ? undefined : Number(remaining) };
        if (place === null) for (const each of of) outcomes[each] = outcome;
        else outcomes[of[place - 1] as number] = outcome;
      }
      return outcomes;
    },
  };
}

/** Whether a statement failed because it waited too long for a locked row. It had no effect. */
export function isLockTimeout(error: unknown): boolean {
  return errorCodeOf(error) === "55P03";
}

/** Whether a statement failed because it began after its deadline. It had no effect. */
export function isTooLate(error: unknown): boolean {
  return errorCodeOf(error) === "LK002";
}

/** The places of the spends of each key. */
function placesByKey(spends: readonly Spend[]): Map<string, number[]> {
  const places = new Map<string, number[]>();
  for (const [place, { keyId }] of spends.entries()) {
    const of = places.get(keyId);
    if (of === undefined) places.set(keyId, [place]);
    else of.push(place);
  }
  return places;
}

const columns = sql`key_id, remaining, refill_interval, refill_amount, refill_day, refilled_at`;

/** The time when a refill is set: the first refill is the next one. Rounded down, because a refill is due at a full second. */
const setAt = sql`date_trunc('milliseconds', clock_timestamp())`;

/** The credits of the key in the part `before`, with the refill that is due. Locked, so that no spend is lost. */
const lockedCredits = sql`
  select credits_at(c, clock_timestamp()) as credits from before, key_credits c
  where c.key_id = (before).key_id for update of c`;

/** An SQL expression for the credits of a row of `keys`; null if it needs none. Its type is `Credits`. */
export const creditsOfKey = sql`
  case when keys.has_credits then (
    select credits_json(credits_at(c, clock_timestamp())) from key_credits c where c.key_id = keys.key_id) end`;

/**
 * The part `created_credits` of a statement that creates a key, after its part `created`. Empty if the key needs no credits.
 */
export function creditsCreation(credits: Credits | null): Fragment {
  if (credits === null) return sql``;
  return sql`,
    created_credits as (
      insert into key_credits (${columns})
      select (created).key_id, ${credits.remaining}::bigint, ${refillColumns(credits.refill ?? null)}, ${setAt}
      from created returning key_credits as credits)`;
}

/**
 * Inserts the credits of several new keys in the part `given` of a statement, unless its part `accepted` is empty. They are in
 * the columns `keyId` and `credits`, whose type is `Credits`.
 */
export const creditsImport = sql`
  insert into key_credits (${columns})
  select "keyId", (credits ->> 'remaining')::bigint, credits #>> '{refill,interval}',
    (credits #>> '{refill,amount}')::bigint, (credits #>> '{refill,refillDay}')::smallint, ${setAt}
  from accepted, given where credits is not null
  returning key_credits as credits`;

/** The event of `creditsCreation`. */
export function creditsCreated(credits: Credits | null): AuditFact[] {
  if (credits === null) return [];
  const facts = sql`
    select (created).workspace_id, (created).key_id, null::json, credits_json(credits) from created, created_credits`;
  return [["key.updateCredits", facts]];
}

/**
 * The parts of a statement that change the credits of the key in its part `before`, unless its part `after` is empty:
 * `credits_before`, and `credits_after`, which is empty if the key needs none any more. The last query of the statement must
 * read `credits_after`: otherwise the lock of the credits would come after the check of the caller.
 */
export function creditsChange(changes: CreditsChanges | null): Fragment {
  const removal = sql`
    removed_credits as (
      delete from key_credits using before, credits_before
      where key_credits.key_id = (before).key_id and exists (select from after) returning key_credits.key_id),
    credits_after as (select credits from credits_before where not exists (select from removed_credits))`;
  return sql`
    credits_before as (${lockedCredits}),
    ${changes === null ? removal : sql`credits_after as (${creditsAssignment(changes)})`},`;
}

/** The event of `creditsChange`, unless nothing has changed. */
export const creditsChanged: AuditFact = [
  "key.updateCredits",
  sql`
    select facts.* from (
      select (before).workspace_id, (before).key_id, (select credits_json(credits) from credits_before) as old,
        (select credits_json(credits) from credits_after) as new from before where exists (select from after)) as facts
    where facts.old::jsonb is distinct from facts.new::jsonb`,
];

/** Whether a change only takes credits away, and is no change when it is repeated. No quota applies to it. */
export function endsCredits(changes: CreditsChanges | null): boolean {
  return changes?.remaining?.operation === "set" && changes.remaining.value === 0 && !changes.refill;
}

/** An SQL expression for the credits after `creditsChange`; null if the key needs none any more. */
export const changedCredits = sql`(select credits_json(credits) from credits_after)`;

/**
 * The part `created_credits` of a statement, which gives the key in its part `made` the credits of the key in its part
 * `before`. Spends that are in flight are included, because their rows are locked. The last query of the statement must read
 * it: otherwise this lock would come after the check of the caller.
 */
export const creditsSuccession = sql`
  inherited as (${lockedCredits}),
  created_credits as (
    insert into key_credits (${columns})
    select (made).key_id, (credits).remaining, (credits).refill_interval, (credits).refill_amount, (credits).refill_day,
      (credits).refilled_at
    from made, inherited returning key_credits as credits),`;

/** The event of `creditsSuccession`. */
export const creditsInherited: AuditFact = [
  "key.updateCredits",
  sql`select (made).workspace_id, (made).key_id, null::json, credits_json(credits) from made, created_credits`,
];

function refillColumns(refill: Refill | null): Fragment {
  if (refill === null) return sql`null::text, null::bigint, null::smallint`;
  return sql`${refill.interval}::text, ${refill.amount}::bigint, ${refill.refillDay ?? null}::smallint`;
}

function creditsAssignment({ remaining, refill }: CreditsChanges): Fragment {
  const keptRefill = sql`(credits).refill_interval, (credits).refill_amount, (credits).refill_day`;
  const refilledAt = refill === undefined ? sql`coalesce((credits).refilled_at, ${setAt})` : setAt;
  return sql`
    insert into key_credits (${columns})
    select (before).key_id, ${remainingAfter(remaining)},
      ${refill === undefined ? keptRefill : refillColumns(refill)}, ${refilledAt}
    from before left join credits_before on true where exists (select from after)
    on conflict (key_id) do update set remaining = excluded.remaining, refill_interval = excluded.refill_interval,
      refill_amount = excluded.refill_amount, refill_day = excluded.refill_day, refilled_at = excluded.refilled_at
    returning key_credits as credits`;
}

function remainingAfter(change: RemainingChange | undefined): Fragment {
  if (change === undefined) return sql`(credits).remaining`;
  const { operation, value } = change;
  const after: Readonly<Record<RemainingChange["operation"], Fragment>> = {
    set: sql`${value}::bigint`,
    increment: sql`least((credits).remaining + ${value}::bigint, ${maxRemaining}::bigint)`,
    decrement: sql`greatest((credits).remaining - ${value}::bigint, 0)`,
  };
  return after[operation];
}
