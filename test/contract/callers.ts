import { mintSecret } from "../../src/keys/secret.js";
import { succeed } from "../support/calls.js";
import { operatorKey, type TestApp } from "../support/harness.js";
import type { Rpc, Things } from "./rpcs.js";

/** Somebody who calls, and how they are answered. */
export interface Caller {
  readonly name: string;
  /** What the Authorization header says; undefined: there is none. */
  readonly authorization: string | undefined;
  /** What they are refused with, or undefined if they are let in. */
  refusal(rpc: Rpc): string | undefined;
  /** The scope that the caller is made for; others are no news to RPCs that need another. */
  readonly about?: string;
}

/** Those of the callers from whom something can be learnt about an RPC. */
export function callersOf({ access }: Rpc, { callers }: Cast): readonly Caller[] {
  return callers.filter(({ about }) => about === undefined || about === access.scope);
}

/** Workspaces, one of them disabled, with keys in every state; and things of the first that can be named. */
export interface Cast {
  readonly callers: readonly Caller[];
  readonly things: Things;
  /** The first key of the workspace that has them. */
  readonly homeKey: string;
  /** Keys with every scope in other workspaces: one that was made before, and one that was made later. */
  readonly strangers: readonly string[];
}

const lacking = "authorization/insufficient_permissions";

/** Sets up who calls the RPCs: every kind of caller there is. */
export async function castCallers(app: TestApp, rpcs: readonly Rpc[]): Promise<Cast> {
  const call = <T>(operation: string, key: string, body: object) => succeed<T>(app.httpUrl, operation, key, body);
  const newWorkspace = (name: string) =>
    call<Made & { workspaceId: string }>("workspaces.createWorkspace", operatorKey, { name });
  const newKey = ({ key }: Made, settings: object = {}) =>
    call<Made>("keys.createKey", key, { scopes: ["*"], ...settings });
  const soon = Date.now() + 60_000;

  // Lists are read in the order of the workspaces: where one has no end, those that were made later are in danger.
  const earlier = await newWorkspace("earlier");
  const home = await newWorkspace("home");
  const closed = await newWorkspace("closed");
  const [later, victim] = await Promise.all([newWorkspace("later"), newKey(home, { externalId: "user" })]);
  const { identity } = await call<{ identity: Things }>("keys.getKey", home.key, { keyId: victim.keyId });

  const [plain, disabled, expired, deleted, rerolled, ofClosed, disabledOfClosed, expiredOfClosed, worstOfClosed] =
    await Promise.all([
      newKey(home),
      newKey(home, { enabled: false }),
      newKey(home, { expires: soon }),
      newKey(home),
      newKey(home),
      newKey(closed),
      newKey(closed, { enabled: false }),
      newKey(closed, { expires: soon }),
      newKey(closed, { scopes: [], enabled: false, expires: soon }),
    ]);
  await call("keys.deleteKey", home.key, { keyId: deleted.keyId });
  await call("keys.rerollKey", home.key, { keyId: rerolled.keyId });
  const closing = { workspaceId: closed.workspaceId, reason: "UNPAID_BILLING" };
  await call("workspaces.disableWorkspace", operatorKey, closing);
  await app.advance(60_000);

  const known = [...new Set(rpcs.flatMap(({ access: { scope } }) => scope || []))];
  const holders = await Promise.all(
    known.flatMap((scope) => {
      const others = known.filter((other) => other !== scope);
      const wildcard = scope.replace(/[^.]+$/, "*");
      return [
        holder(`all but ${scope}`, [...others, ...lookalikesOf(scope)], scope),
        holder(`${scope} alone`, [scope], scope),
        holder(`${wildcard} alone`, [wildcard], scope),
      ];
    }),
  );

  /** A good key, and what it holds. */
  async function holder(name: string, held: readonly string[], about?: string, settings = {}): Promise<Caller> {
    return {
      name: `a key that holds ${name}`,
      authorization: bearer(await newKey(home, { scopes: held, ...settings })),
      refusal: ({ access: { scope } }) => {
        const covering = [scope, scope.replace(/[^.]+$/, "*"), "*"];
        return scope !== "" && held.some((each) => covering.includes(each)) ? undefined : lacking;
      },
      ...(about && { about }),
    };
  }

  const refused = (name: string, code: string, authorization?: string): Caller => ({
    name,
    authorization,
    refusal: () => code,
  });
  const missing = "authentication/missing";
  const malformed = "authentication/malformed";
  const unknown = "authentication/key_not_found";
  const ended = "authentication/key_expired";
  const workspaceDisabled = "authorization/workspace_disabled";

  return {
    things: {
      workspaceId: home.workspaceId,
      keyId: victim.keyId,
      key: victim.key,
      identityId: identity["identityId"] ?? "",
      externalId: "somebody new",
      name: "a new name",
    },
    homeKey: home.key,
    strangers: [earlier.key, later.key],
    callers: [
      refused("nobody", missing),
      refused("a key without the scheme", malformed, plain.key),
      refused("a key by another scheme", malformed, `Basic ${btoa(`${plain.key}:`)}`),
      refused("a scheme without a key", malformed, "Bearer"),
      refused("a word that is no key", malformed, "Bearer hello"),
      refused("a key whose checksum is wrong", malformed, `Bearer ${withAnotherEnd(plain.key)}`),
      refused("almost the operator", malformed, `Bearer ${operatorKey}x`),
      refused("two good keys", malformed, `${bearer(plain)}, ${bearer(plain)}`),
      refused("a key that nobody made", unknown, `Bearer ${mintSecret().plaintext}`),
      refused("a deleted key", unknown, bearer(deleted)),
      refused("a key that was rerolled", ended, bearer(rerolled)),
      refused("an expired key", ended, bearer(expired)),
      refused("a disabled key", "authorization/key_disabled", bearer(disabled)),
      refused("a key of a disabled workspace", workspaceDisabled, bearer(ofClosed)),
      refused("a disabled key of a disabled workspace", workspaceDisabled, bearer(disabledOfClosed)),
      refused("an expired key of a disabled workspace", workspaceDisabled, bearer(expiredOfClosed)),
      refused("a key with every fault, of a disabled workspace", workspaceDisabled, bearer(worstOfClosed)),
      await holder("nothing", []),
      await holder("permissions alone, by the names of scopes", [], undefined, {
        permissions: ["*", "keys.*", ...known],
      }),
      await holder("each scope by its name, and some that there are not", [...known, "operator", "workspaces.*"]),
      await holder("*", ["*"]),
      ...holders,
      {
        name: "the operator",
        authorization: `Bearer ${operatorKey}`,
        refusal: ({ access }) => (access.operator ? undefined : lacking),
      },
    ],
  };
}

/** A key that was made. */
interface Made {
  readonly keyId: string;
  readonly key: string;
}

function bearer({ key }: Made): string {
  return `Bearer ${key}`;
}

/** What looks like a scope, and is none. */
function lookalikesOf(scope: string): string[] {
  const [resource = ""] = scope.split(".");
  return [resource, `${scope}.more`, `${scope}.*`, scope.toUpperCase(), `x${scope}`];
}

function withAnotherEnd(key: string): string {
  return key.slice(0, -1) + (key.endsWith("A") ? "B" : "A");
}
