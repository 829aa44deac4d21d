import { isDeepStrictEqual } from "node:util";
import type { Request } from "./request.js";

/** The request that reads what an operation has stored. */
export interface Reading {
  readonly operation: string;
  readonly request: Request;
  /** The member of the response with the resource. */
  readonly resource: string;
}

type Response = Readonly<Record<string, unknown>>;

const resources: Record<string, { idName: string; operation: string; resource: string }> = {
  Key: { idName: "keyId", operation: "getKey", resource: "key" },
  Identity: { idName: "identityId", operation: "getIdentity", resource: "identity" },
  Workspace: { idName: "workspaceId", operation: "getWorkspace", resource: "workspace" },
  Api: { idName: "apiId", operation: "getApi", resource: "api" },
};

/** Resources that are read by another field than the id in the response. */
const referenced: Record<string, (intended: Request) => Reading> = {
  createRole: ({ name }) => ({ operation: "getRole", request: { role: name }, resource: "role" }),
  createPermission: ({ slug }) => ({
    operation: "getPermission",
    request: { permission: slug },
    resource: "permission",
  }),
  setOverride: ({ namespace, identifier }) => ({
    operation: "getOverride",
    request: { namespace, identifier },
    resource: "override",
  }),
};

/** The request to read a created or changed resource. Undefined if the operation does neither. */
export function readingOf(operation: string, intended: Request, response: Response): Reading | undefined {
  const byField = referenced[operation];
  if (byField !== undefined) return byField(intended);
  const [, noun = ""] = /^(?:create|update|disable)(\w+)$/.exec(operation) ?? [];
  const found = resources[noun];
  if (found === undefined) return undefined;
  const resource = response[found.resource] as Response | undefined;
  const id = resource?.[found.idName] ?? response[found.idName] ?? intended[found.idName];
  return { operation: found.operation, request: { [found.idName]: id }, resource: found.resource };
}

/** The members of a request that differ in the resource. */
export function differences(operation: string, intended: Request, resource: Response): string[] {
  const isIdentity = operation.endsWith("Identity");
  return Object.entries(intended).flatMap(([name, given]) => {
    // It may be either of the two identifiers.
    if (isIdentity && name === "identity") return [];
    if (name === "prefix") return String(resource["start"]).startsWith(`${given}_`) ? [] : ["prefix"];
    if (name === "byteLength" || name === "recoverable") return [];
    const found = memberOf(name, isIdentity, resource);
    // Protobuf timestamps can have fractions of a millisecond, which the service rounds up.
    if (name === "expires" && Number(found) - Number(given) === 1) return [];
    const expected = given ?? (isList(name) ? [] : isIdentity ? {} : undefined);
    const comparable = comparables[name] ?? ((value) => value);
    return isDeepStrictEqual(normalized(comparable(found, given)), normalized(comparable(expected, given)))
      ? []
      : [`${name}: ${show(found)} for ${show(expected)}`];
  });
}

function isList(name: string): boolean {
  return ["scopes", "permissions", "roles", "ratelimits"].includes(name);
}

/** Forms in which the given and the stored value are equal. */
const comparables: Record<string, (value: unknown, given: unknown) => unknown> = {
  // The roles of a key are a set.
  roles: (names) => [...(names as string[])].sort(),
  // Each has a new id.
  ratelimits: (limits) =>
    (limits as Record<string, unknown>[]).map(({ id: _, ...settings }) => ({ autoApply: false, ...settings })),
  // A role returns its permissions with their descriptions.
  permissions: (permissions) =>
    (permissions as (string | { slug: string })[]).map((each) => (typeof each === "string" ? each : each.slug)),
  // An update can change a part of them. `null` clears the rest.
  credits: (credits, given) =>
    Object.keys((given ?? {}) as object).map((name) => (credits as Response | undefined)?.[name] ?? null),
};

/** The member of the resource that corresponds to a member of a request. */
function memberOf(name: string, isIdentity: boolean, resource: Response): unknown {
  const owner = resource["identity"] as Response | undefined;
  if (name === "identityId" || name === "externalId") return (isIdentity ? resource : owner)?.[name];
  const renamed: Record<string, string> = { reason: "disabledReason", note: "disabledNote" };
  return resource[renamed[name] ?? name];
}

/** Normalizes through JSON, which removes the sign of zero. */
function normalized(value: unknown): unknown {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}

function show(value: unknown): string {
  return (JSON.stringify(value) ?? "nothing").slice(0, 300);
}
