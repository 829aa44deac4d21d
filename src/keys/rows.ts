import type { JsonObject } from "@bufbuild/protobuf";
import type { Credits, CreditsChanges } from "../credits/store.js";
import type { NewIdentity } from "../identities/store.js";
import type { RateLimitSettings } from "../revocation/key-state.js";

/** A key to be stored. */
export interface NewKey {
  readonly keyId: string;
  readonly workspaceId: string;
  /** SHA-256 of its secret, in hex. */
  readonly hash: string;
  readonly start: string;
  readonly name: string | null;
  readonly enabled: boolean;
  /** What the key may do with this service. */
  readonly scopes: readonly string[];
  /** What the key may do in the user's own application. */
  readonly permissions: readonly string[];
  /** Its roles, by their names or ids. */
  readonly roles: readonly string[];
  readonly apiId: string | null;
  readonly ratelimits: readonly RateLimitSettings[];
  /** Null: its verifications need none. */
  readonly credits: Credits | null;
  readonly meta: JsonObject | null;
  readonly expiresAt: Date | null;
}

/** A stored key with its identity and the names of its roles. */
export interface KeyRow extends Omit<NewKey, "hash"> {
  readonly createdAt: Date;
  readonly updatedAt: Date;
  readonly lastUsedAt: Date | null;
  readonly identityId: string | null;
  readonly externalId: string;
  readonly identityMeta: JsonObject;
  readonly identityRatelimits: readonly RateLimitSettings[];
  readonly identityCreatedAt: Date;
  readonly identityUpdatedAt: Date;
}

/** The changes of an update. An undefined field stays as it is. */
export interface KeyChanges {
  readonly name?: string | null;
  readonly enabled?: boolean;
  readonly scopes?: readonly string[];
  readonly permissions?: readonly string[];
  /** By their names or ids. */
  readonly roles?: readonly string[];
  /** The ids of roles that the key keeps besides `roles`, also if they are being deleted. */
  readonly keptRoleIds?: readonly string[];
  readonly ratelimits?: readonly RateLimitSettings[];
  /** Null: its verifications need none any more. */
  readonly credits?: CreditsChanges | null;
  readonly meta?: JsonObject | null;
  readonly expiresAt?: Date | null;
  /** Null removes the identity from the key. */
  readonly owner?: Owner | null;
}

/** The owner of a key: an existing identity, or one that is created with the key if it does not exist. */
export type Owner =
  | { readonly kind: "existing"; readonly identityId: string }
  | { readonly kind: "named"; readonly identity: NewIdentity };

/** The state of a key that a change is checked against. */
export interface KeyVersion
  extends Pick<NewKey, "keyId" | "workspaceId" | "start" | "enabled" | "scopes" | "permissions" | "expiresAt"> {
  /** The roles of the key that were not deleted, in the order of `role_ids`. */
  readonly roles: readonly { readonly roleId: string; readonly name: string }[];
  /** The expiry that was set: a reroll may have ended the key earlier. */
  readonly configuredExpiresAt: Date | null;
  /** Whether the configured expiry has passed. */
  readonly isExpired: boolean;
  readonly hasCredits: boolean;
  /** The transaction of the last change. While it is the same, so are all fields of this version but `roles`. */
  readonly changedXid: string;
}

/** The key that a change applies to: at a version, or, without one, in any state in which it has no scopes. */
export type ChangedKey = Pick<KeyVersion, "workspaceId" | "keyId"> & Partial<Pick<KeyVersion, "changedXid">>;

/** The fields of a successor that differ from the key it replaces. */
export type Successor = Pick<NewKey, "keyId" | "hash" | "start">;

/** The keys to list. An undefined field does not filter. */
export interface KeyFilter {
  readonly apiId: string | undefined;
  readonly externalId: string | undefined;
  readonly enabled: boolean | undefined;
}
