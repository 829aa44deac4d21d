import { randomBytes } from "node:crypto";
import { mintSecret } from "../../src/keys/secret.js";
import { succeed } from "../support/calls.js";
import { operatorKey, type TestApp } from "../support/harness.js";
import type { Rpc, Things } from "../support/rpcs.js";

/** A kind of caller, and whether it is authorized. */
export interface Caller {
  readonly name: string;
  /** The value of the Authorization header, or undefined if there is none. */
  readonly authorization: string | undefined;
  /** The error code that the caller is refused with, or undefined if it is authorized. */
  refusal(rpc: Rpc): string | undefined;
  /** The scope that this caller tests. RPCs that require another scope skip it. */
  readonly about?: string;
}

/** The callers that are relevant to an RPC. */
export function callersOf({ access }: Rpc, { callers }: Cast): readonly Caller[] {
  return callers.filter(({ about }) => about === undefined || about === access.scope);
}

/** Workspaces, one of them disabled, with keys in every state; and resources of the first to name in requests. */
export interface Cast {
  readonly callers: readonly Caller[];
  readonly things: Things;
  /** The first key of the workspace that owns these resources. */
  readonly homeKey: string;
  /** Keys with every scope in two other workspaces, one created before and one created after. */
  readonly foreignKeys: readonly string[];
}

const lacking = "authorization/insufficient_permissions";

/** Creates every kind of caller. */
export async function castCallers(app: TestApp, rpcs: readonly Rpc[]): Promise<Cast> {
  const call = <T>(operation: string, key: string, body: object) => succeed<T>(app.httpUrl, operation, key, body);
  const newWorkspace = (name: string) =>
    call<Made & { workspaceId: string }>("workspaces.createWorkspace", operatorKey, { name });
  const newKey = ({ key }: Made, settings: object = {}) =>
    call<Made>("keys.createKey", key, { scopes: ["*"], ...settings });
  const soon = Date.now() + 60_000;

  // Lists are sorted by workspace: a list without an upper bound would run on into workspaces that were created later.
  const earlier = await newWorkspace("earlier");
  const home = await newWorkspace("home");
  const closed = await newWorkspace("closed");
  const [later, victim] = await Promise.all([newWorkspace("later"), newKey(home, { externalId: "user" })]);
  const { identity } = await call<{ identity: Things }>("keys.getKey", home.key, { keyId: victim.keyId });
  const [{ apiId = "" }, { roleId = "" }, { permissionId = "" }] = await Promise.all([
    call<Things>("apis.createApi", home.key, { name: "payments" }),
    call<Things>("permissions.createRole", home.key, { name: "editor", permissions: ["documents.edit"] }),
    call<Things>("permissions.createPermission", home.key, { name: "Edit documents", slug: "documents.edit" }),
    call("ratelimit.setOverride", home.key, {
      namespace: "email.send",
      identifier: "user",
      limit: 9,
      duration: 60_000,
    }),
  ]);

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

  /** A valid key with these scopes. */
  async function holder(name: string, scopes: readonly string[], about?: string, settings = {}): Promise<Caller> {
    return {
      name: `a key with the scopes: ${name}`,
      authorization: bearer(await newKey(home, { scopes, ...settings })),
      refusal: ({ access: { scope } }) => {
        const covering = [scope, scope.replace(/[^.]+$/, "*"), "*"];
        return scope !== "" && scopes.some((each) => covering.includes(each)) ? undefined : lacking;
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
      apiId,
      roleId,
      role: roleId,
      permission: permissionId,
      slug: "documents.read",
      namespace: "email.send",
      identifier: "user",
      migrationId: "from another service",
      hash: newHash(),
    },
    homeKey: home.key,
    foreignKeys: [earlier.key, later.key],
    callers: [
      refused("no credential", missing),
      refused("a key without a scheme", malformed, plain.key),
      refused("a key with another scheme", malformed, `Basic ${btoa(`${plain.key}:`)}`),
      refused("a scheme without a key", malformed, "Bearer"),
      refused("a word that is not a key", malformed, "Bearer hello"),
      refused("a key whose checksum is wrong", malformed, `Bearer ${withAnotherEnd(plain.key)}`),
      refused("almost the operator", malformed, `Bearer ${operatorKey}x`),
      refused("two good keys", malformed, `${bearer(plain)}, ${bearer(plain)}`),
      refused("a key that was never created", unknown, `Bearer ${mintSecret().plaintext}`),
      refused("a deleted key", unknown, bearer(deleted)),
      refused("a rerolled key", ended, bearer(rerolled)),
      refused("an expired key", ended, bearer(expired)),
      refused("a disabled key", "authorization/key_disabled", bearer(disabled)),
      refused("a key of a disabled workspace", workspaceDisabled, bearer(ofClosed)),
      refused("a disabled key of a disabled workspace", workspaceDisabled, bearer(disabledOfClosed)),
      refused("an expired key of a disabled workspace", workspaceDisabled, bearer(expiredOfClosed)),
      refused("a key with every fault, of a disabled workspace", workspaceDisabled, bearer(worstOfClosed)),
      await holder("nothing", []),
      await holder("none, but permissions with the names of scopes", [], undefined, {
        permissions: ["*", "keys.*", ...known],
      }),
      await holder("every known scope, and some unknown ones", [...known, "operator", "workspaces.*"]),
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

/** A created key. */
interface Made {
  readonly keyId: string;
  readonly key: string;
}

/** The hash of a secret that nobody has. */
export function newHash(): string {
  return randomBytes(32).toString("base64");
}

function bearer({ key }: Made): string {
  return `Bearer ${key}`;
}

/** Strings that resemble the scope, but do not grant it. */
function lookalikesOf(scope: string): string[] {
  const [resource = ""] = scope.split(".");
  return [resource, `${scope}.more`, `${scope}.*`, scope.toUpperCase(), `x${scope}`];
}

function withAnotherEnd(key: string): string {
  return key.slice(0, -1) + (key.endsWith("A") ? "B" : "A");
}
