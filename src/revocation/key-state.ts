import type { JsonObject } from "@bufbuild/protobuf";

/** A rate limit of a key or an identity. */
export interface RateLimitSettings {
  readonly id: string;
  readonly name: string;
  readonly limit: number;
  /** The length of a window in milliseconds. */
  readonly duration: number;
  /** Whether every verification counts. Otherwise only those that name the limit do. */
  readonly autoApply: boolean;
}

/** What verification reads of a key, its API, its roles, its identity and its workspace. */
export interface KeyRecord {
  readonly keyId: string;
  readonly workspaceId: string;
  readonly name: string | null;
  readonly enabled: boolean;
  /** What the key may do with this service. */
  readonly scopes: readonly string[];
  /** What the key may do in the user's own application, with the permissions of its roles. */
  readonly permissions: readonly string[];
  readonly apiId: string | null;
  /** Also roles that were deleted since. */
  readonly roleIds: readonly string[];
  /** The names of its roles. */
  readonly roles: readonly string[];
  readonly ratelimits: readonly RateLimitSettings[];
  /** Whether a verification spends credits. */
  readonly hasCredits: boolean;
  readonly meta: JsonObject | null;
  readonly expiresAt: Date | null;
  /** The key was ended on request, and the end has come. No clock can reverse that. */
  readonly ended: boolean;
  readonly identityId: string | null;
  readonly externalId: string;
  readonly identityMeta: JsonObject;
  readonly identityRatelimits: readonly RateLimitSettings[];
  readonly identityCreatedAt: Date;
  readonly identityUpdatedAt: Date;
  readonly workspaceEnabled: boolean;
  readonly workspaceHasImports: boolean;
}

/** What decides about all keys of a workspace. */
export interface WorkspaceState {
  readonly enabled: boolean;
  /** Whether keys were imported. Their secrets have another format than those of this service. */
  readonly hasImports: boolean;
}

/** One object for equal states, so that they can be compared by identity. */
export function workspaceState({ enabled, hasImports }: WorkspaceState): WorkspaceState {
  return workspaceStates[`${enabled}/${hasImports}`];
}

const workspaceStates: Readonly<Record<`${boolean}/${boolean}`, WorkspaceState>> = {
  "true/true": { enabled: true, hasImports: true },
  "true/false": { enabled: true, hasImports: false },
  "false/true": { enabled: false, hasImports: true },
  "false/false": { enabled: false, hasImports: false },
};

/** A key and whether its workspace is enabled, with every acknowledged change. */
export interface KeyState {
  readonly key: Omit<KeyRecord, "workspaceEnabled" | "workspaceHasImports">;
  readonly workspaceEnabled: boolean;
}

/** The ids of the rows that the state of a key was made from, without its workspace. */
export function rowsOf({ keyId, apiId, roleIds, identityId }: KeyState["key"]): string[] {
  return [keyId, ...(apiId === null ? [] : [apiId]), ...roleIds, ...(identityId === null ? [] : [identityId])];
}
