import { isDeepStrictEqual } from "node:util";
import type { Request } from "./request.js";

/** How what was stored by an operation is read. */
export interface Reading {
  readonly operation: string;
  readonly request: Request;
  /** The member of the response that is the resource. */
  readonly resource: string;
}

type Response = Readonly<Record<string, unknown>>;

const nouns: Record<string, { idName: string; operation: string; resource: string }> = {
  Key: { idName: "keyId", operation: "getKey", resource: "key" },
  Identity: { idName: "identityId", operation: "getIdentity", resource: "identity" },
  Workspace: { idName: "workspaceId", operation: "getWorkspace", resource: "workspace" },
};

/** How to read what an operation has created or changed; undefined if it does neither. */
export function readingOf(operation: string, meant: Request, response: Response): Reading | undefined {
  const [, noun = ""] = /^(?:create|update|disable)(\w+)$/.exec(operation) ?? [];
  const found = nouns[noun];
  if (found === undefined) return undefined;
  const resource = response[found.resource] as Response | undefined;
  const id = resource?.[found.idName] ?? response[found.idName] ?? meant[found.idName];
  return { operation: found.operation, request: { [found.idName]: id }, resource: found.resource };
}

/** What of a request is not in the resource as it was given. */
export function differences(operation: string, meant: Request, resource: Response): string[] {
  const isIdentity = operation.endsWith("Identity");
  return Object.entries(meant).flatMap(([name, given]) => {
    // Either of the two identifiers, whichever it was.
    if (isIdentity && name === "identity") return [];
    if (name === "prefix") return String(resource["start"]).startsWith(`${given}_`) ? [] : ["prefix"];
    const found = memberOf(name, isIdentity, resource);
    // A part of a millisecond, which protobuf can have, counts as a whole one.
    if (name === "expires" && Number(found) - Number(given) === 1) return [];
    const expected = given ?? (isIdentity ? {} : isList(name) ? [] : undefined);
    return isDeepStrictEqual(plain(found), plain(expected)) ? [] : [`${name}: ${show(found)} for ${show(expected)}`];
  });
}

function isList(name: string): boolean {
  return name === "scopes" || name === "permissions";
}

/** Where a member of a request is found in the resource. */
function memberOf(name: string, isIdentity: boolean, resource: Response): unknown {
  const owner = resource["identity"] as Response | undefined;
  if (name === "identityId" || name === "externalId") return (isIdentity ? resource : owner)?.[name];
  const renamed: Record<string, string> = { reason: "disabledReason", note: "disabledNote" };
  return resource[renamed[name] ?? name];
}

/** As JSON has it: without the sign of zero. */
function plain(value: unknown): unknown {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}

function show(value: unknown): string {
  return (JSON.stringify(value) ?? "nothing").slice(0, 300);
}
