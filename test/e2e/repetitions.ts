import { isDeepStrictEqual } from "node:util";
import type { PendingQuery, Sql } from "postgres";
import type { OperationName } from "../contract/operations.js";
import type { Random } from "../verification/faults/random.js";
import { type Caller, type CallerKind, callerKinds, type Fate, type Fields, judged, type Target } from "./callers.js";

/** A call that creates something, and was sent with an Idempotency-Key. */
export interface Create {
  readonly through: CallerKind;
  readonly operation: OperationName;
  readonly credential: string;
  readonly request: Fields;
  readonly idempotencyKey: string;
  /** The first answer; undefined while there is none. */
  answer: Fields | undefined;
  /** Is told the answer of one that had none. */
  learn(answer: Fields): void;
}

/** How many creates were sent again, by what had become of them. */
export interface Repeated {
  /** Their answer was lost, and what they create was there. */
  made: number;
  /** Their answer was lost, and they had come to nothing. */
  undone: number;
  /** They had been answered. */
  answered: number;
}

/** How many that were answered are sent again: the last before the blow, and some of all. */
const mostAnswered = { latest: 12, others: 4 };

/**
 * Sends creates again, each through another kind of client than the first time. Says in words what is wrong: of each
 * that had got no answer there is exactly one afterwards, and its answer tells of that one; each that had been answered
 * gets the same answer, and changes nothing.
 */
export async function repeatCreates(
  target: Target,
  sql: Sql,
  creates: readonly Create[],
  random: Random,
  repeated: Repeated,
): Promise<string[]> {
  const kinds = Object.keys(callerKinds) as CallerKind[];
  const open = new Map<CallerKind, Caller>(kinds.map((kind) => [kind, callerKinds[kind](target)]));
  const again = ({ through, operation, credential, request, idempotencyKey }: Create): Promise<Fate> => {
    const other = random.pick(kinds.filter((kind) => kind !== through));
    return judged(open.get(other) as Caller, operation, credential, request, idempotencyKey);
  };

  async function repeatLost(create: Create): Promise<string[]> {
    const before = await readMade(sql, create);
    const fate = await again(create);
    if (fate.kind !== "answered") return [`without an answer, ${tell(create)} got ${JSON.stringify(fate)}`];
    create.answer = fate.data;
    create.learn(fate.data);
    repeated[before.length > 0 ? "made" : "undone"] += 1;
    const after = await readMade(sql, create);
    const told = fate.data[create.operation === "createIdentity" ? "identityId" : "keyId"];
    return isDeepStrictEqual(after, [told]) ? [] : [`${tell(create)} was answered with ${told}, there is ${after}`];
  }

  async function repeatAnswered(create: Create): Promise<string[]> {
    const fate = await again(create);
    repeated.answered += 1;
    if (fate.kind === "answered" && isDeepStrictEqual(fate.data, create.answer)) return [];
    return [`${tell(create)} was answered with ${JSON.stringify(create.answer)}, then with ${JSON.stringify(fate)}`];
  }

  const lost = creates.filter(({ answer }) => answer === undefined);
  const answered = creates.filter(({ answer }) => answer !== undefined);
  const latest = answered.splice(-mostAnswered.latest);
  const others = random.shuffle(answered).slice(0, mostAnswered.others);
  const wrong = (await Promise.all(lost.map(repeatLost))).flat();
  const before = await countChanges(sql);
  wrong.push(...(await Promise.all([...latest, ...others].map(repeatAnswered))).flat());
  const changes = (await countChanges(sql)) - before;
  if (changes > 0) wrong.push(`to repeat what had been answered made ${changes} changes`);
  for (const caller of open.values()) caller.close();
  return wrong;
}

/**
 * How all is found that a create has made which was not answered; of a workspace, its first key. By a name that no other
 * has: what nobody knows of, nobody has changed since.
 */
const made: Partial<Record<OperationName, (sql: Sql, request: Fields) => PendingQuery<{ id: string }[]>>> = {
  createKey: (sql, { name }) => sql`select key_id as id from keys where name = ${String(name)}`,
  createRootKey: (sql, { name }) => sql`select key_id as id from keys where name = ${String(name)}`,
  createIdentity: (sql, { externalId }) => sql`
    select identity_id as id from identities where external_id = ${String(externalId)}`,
  createWorkspace: (sql, { name }) => sql`
    select key_id as id from workspaces left join keys using (workspace_id) where workspaces.name = ${String(name)}`,
  rerollKey: (sql, { keyId }) => sql`
    select made.resource_id as id from audit_events replaced
    join audit_events made on made.request_id = replaced.request_id and made.type = 'key.create'
    where replaced.type = 'key.reroll' and replaced.resource_id = ${String(keyId)}`,
};

async function readMade(sql: Sql, { operation, request }: Create): Promise<string[]> {
  const rows = (await made[operation]?.(sql, request)) ?? [];
  return rows.map(({ id }) => id);
}

async function countChanges(sql: Sql): Promise<number> {
  const [row] = await sql<{ count: number }[]>`select count(*)::int from audit_events`;
  return row?.count ?? Number.NaN;
}

function tell({ operation, request }: Create): string {
  return `${operation} of ${JSON.stringify(request)}`;
}
