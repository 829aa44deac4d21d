/** Pools of values that a request can refer to, including the cursors of each list. */
export type PoolName =
  | "keyId"
  | "secret"
  | "identityId"
  | "externalId"
  | "workspaceId"
  | "homeId"
  | "apiId"
  | "role"
  | "slug"
  | `cursor of ${string}`;

/** A placeholder in a generated request for a value that is known when the request is sent. */
export interface Reference {
  readonly refersTo: PoolName;
  readonly index: number;
}

/** A request with the field names, times and enum names of HTTP/JSON, and with references. */
export type Template = Readonly<Record<string, unknown>>;

/** A request with all references resolved. */
export type Request = Readonly<Record<string, unknown>>;

/** Resolves a reference. Undefined if there is no value; the field is then omitted. */
export type Resolve = (reference: Reference) => string | undefined;

/** Replaces references by values, also in messages and lists of messages. */
export function resolved(template: Template, resolve: Resolve): Request {
  const members = Object.entries(template).map(([name, given]) => [name, resolvedValue(given, resolve)]);
  return Object.fromEntries(members.filter(([, given]) => given !== undefined));
}

function resolvedValue(given: unknown, resolve: Resolve): unknown {
  if (Array.isArray(given)) {
    const items = given.map((item) => resolvedValue(item, resolve)).filter((item) => item !== undefined);
    // Two references can refer to the same value.
    return given.some(isReference) ? [...new Set(items)] : items;
  }
  if (typeof given !== "object" || given === null || Buffer.isBuffer(given)) return given;
  return isReference(given) ? resolve(given) : resolved(given as Template, resolve);
}

function isReference(given: unknown): given is Reference {
  return typeof given === "object" && given !== null && "refersTo" in given;
}
