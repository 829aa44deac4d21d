import { isDeepStrictEqual } from "node:util";
import type { PendingQuery, Sql } from "postgres";
import {
  callUntilAvailable,
  type Fields,
  type Outcome,
  type Target,
  type UncheckedClient,
  type UncheckedClientKind,
  uncheckedClientKinds,
} from "../support/clients/unchecked.js";
import type { OperationName } from "../support/operations.js";
import type { Random } from "../verification/faults/random.js";
import { openClient } from "./clients.js";

/** A create call that was sent with an Idempotency-Key. */
export interface Create {
  readonly kind: UncheckedClientKind;
  readonly operation: OperationName;
  readonly credential: string;
  readonly request: Fields;
  readonly idempotencyKey: string;
  /** The first response; undefined while there is none. */
  response: Fields | undefined;
  /** Called with the response of a retry, if there was none before. */
  onResponse(response: Fields): void;
}

/** The number of retried creates, by the outcome of their first attempt. */
export interface RetryCounts {
  /** The response was lost, and the resource existed. */
  made: number;
  /** The response was lost, and the resource did not exist. */
  undone: number;
  /** The first attempt got a response. */
  answered: number;
}

/** The number of answered creates that are retried: the last ones before the kill, and a sample of the others. */
const maxAnswered = { latest: 12, others: 4 };

/**
 * Retries creates, each with another kind of client than the first time, and describes all violations. After the retry
 * of a create without a response, exactly one resource exists, and the response describes it. The retry of a create
 * with a response returns the same response and changes nothing.
 */
export async function retryCreates(
  target: Target,
  sql: Sql,
  creates: readonly Create[],
  random: Random,
  counts: RetryCounts,
): Promise<string[]> {
  const open = new Map<UncheckedClientKind, UncheckedClient>(
    uncheckedClientKinds.map((kind) => [kind, openClient(kind, target)]),
  );
  const retry = ({ kind: firstKind, operation, credential, request, idempotencyKey }: Create): Promise<Outcome> => {
    const other = random.pick(uncheckedClientKinds.filter((kind) => kind !== firstKind));
    return callUntilAvailable(open.get(other) as UncheckedClient, operation, credential, request, { idempotencyKey });
  };

  async function retryLost(create: Create): Promise<string[]> {
    const before = await readCreatedIds(sql, create);
    const outcome = await retry(create);
    if (outcome.kind !== "success")
      return [`${describe(create)} had no response, and its retry got ${JSON.stringify(outcome)}`];
    create.response = outcome.data;
    create.onResponse(outcome.data);
    counts[before.length > 0 ? "made" : "undone"] += 1;
    const after = await readCreatedIds(sql, create);
    const returnedId = createdIdIn(create.operation, outcome.data);
    return isDeepStrictEqual(after, [returnedId])
      ? []
      : [`${describe(create)} returned ${returnedId}, but the database has ${after}`];
  }

  async function retryAnswered(create: Create): Promise<string[]> {
    const outcome = await retry(create);
    counts.answered += 1;
    if (outcome.kind === "success" && isDeepStrictEqual(outcome.data, create.response)) return [];
    return [`${describe(create)} first returned ${JSON.stringify(create.response)}, then ${JSON.stringify(outcome)}`];
  }

  const lost = creates.filter(({ response }) => response === undefined);
  const answered = creates.filter(({ response }) => response !== undefined);
  const latest = answered.splice(-maxAnswered.latest);
  const others = random.shuffle(answered).slice(0, maxAnswered.others);
  const violations = (await Promise.all(lost.map(retryLost))).flat();
  const before = await countChanges(sql);
  violations.push(...(await Promise.all([...latest, ...others].map(retryAnswered))).flat());
  const changes = (await countChanges(sql)) - before;
  if (changes > 0) violations.push(`retries of answered creates made ${changes} changes`);
  for (const client of open.values()) client.close();
  return violations;
}

/**
 * Queries for the resource of a create without a response; for a workspace, its first key. They search by a unique
 * name: no writer knows the resource, so none has changed it since.
 */
const createdIds: Partial<Record<OperationName, (sql: Sql, request: Fields) => PendingQuery<{ id: string }[]>>> = {
  createKey: (sql, { name }) => sql`select key_id as id from keys where name = ${String(name)}`,
  createRootKey: (sql, { name }) => sql`select key_id as id from keys where name = ${String(name)}`,
  createIdentity: (sql, { externalId }) => sql`
    select identity_id as id from identities where external_id = ${String(externalId)}`,
  createWorkspace: (sql, { name }) => sql`
    select key_id as id from workspaces left join keys using (workspace_id) where workspaces.name = ${String(name)}`,
  createApi: (sql, { name }) => sql`select api_id as id from apis where name = ${String(name)}`,
  createRole: (sql, { name }) => sql`select role_id as id from roles where name = ${String(name)}`,
  createPermission: (sql, { slug }) => sql`select permission_id as id from permissions where slug = ${String(slug)}`,
  migrateKeys: (sql, { keys }) => sql`
    select key_id as id from keys where name = ${String((keys as { name: string }[])[0]?.name)}`,
  rerollKey: (sql, { keyId }) => sql`
    select made.resource_id as id from audit_events replaced
    join audit_events made on made.request_id = replaced.request_id and made.type = 'key.create'
    where replaced.type = 'key.reroll' and replaced.resource_id = ${String(keyId)}`,
};

/** The id of the created resource in a response. */
function createdIdIn(operation: OperationName, data: Fields): unknown {
  if (operation === "migrateKeys") return (data["migrated"] as { keyId: string }[])[0]?.keyId;
  const names: Partial<Record<OperationName, string>> = {
    createIdentity: "identityId",
    createApi: "apiId",
    createRole: "roleId",
    createPermission: "permissionId",
  };
  return data[names[operation] ?? "keyId"];
}

async function readCreatedIds(sql: Sql, { operation, request }: Create): Promise<string[]> {
  const rows = (await createdIds[operation]?.(sql, request)) ?? [];
  return rows.map(({ id }) => id);
}

async function countChanges(sql: Sql): Promise<number> {
  const [row] = await sql<{ count: number }[]>`select count(*)::int from audit_events`;
  return row?.count ?? Number.NaN;
}

function describe({ operation, request }: Create): string {
  return `${operation} of ${JSON.stringify(request)}`;
}
