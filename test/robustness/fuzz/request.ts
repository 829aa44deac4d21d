/** What a lane has that a request can refer to; of each list, the cursors that it gave. */
export type PoolName =
  | "keyId"
  | "secret"
  | "identityId"
  | "externalId"
  | "workspaceId"
  | "homeId"
  | `cursor of ${string}`;

/** Stands in a generated request for something that is there when the request is sent. */
export interface Reference {
  readonly refersTo: PoolName;
  readonly index: number;
}

/** A request in the names, times and enum names of HTTP, with references in it. */
export type Template = Readonly<Record<string, unknown>>;

/** A request whose references have become values. */
export type Request = Readonly<Record<string, unknown>>;

/** Finds what a reference stands for; undefined if there is no such thing, and the field is left out. */
export type Resolve = (reference: Reference) => string | undefined;

/** Puts values in the place of references. They stand at the top of a request. */
export function resolved(template: Template, resolve: Resolve): Request {
  const members = Object.entries(template).map(([name, given]) => [name, isReference(given) ? resolve(given) : given]);
  return Object.fromEntries(members.filter(([, given]) => given !== undefined));
}

function isReference(given: unknown): given is Reference {
  return typeof given === "object" && given !== null && "refersTo" in given;
}
