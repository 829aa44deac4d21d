import type { JsonObject } from "@bufbuild/protobuf";

/** The columns of a key, its identity and its workspace that verification reads. */
export interface KeyRecord {
  readonly keyId: string;
  readonly workspaceId: string;
  readonly name: string | null;
  readonly enabled: boolean;
  /** What the key may do with this service. */
  readonly scopes: readonly string[];
  /** What the key may do in the user's own application. */
  readonly permissions: readonly string[];
  readonly meta: JsonObject | null;
  readonly expiresAt: Date | null;
  /** The key was ended on request, and the end has come. No clock can reverse that. */
  readonly ended: boolean;
  readonly identityId: string | null;
  readonly externalId: string;
  readonly identityMeta: JsonObject;
  readonly identityCreatedAt: Date;
  readonly identityUpdatedAt: Date;
  readonly workspaceEnabled: boolean;
}

/** A key and whether its workspace is enabled, with every acknowledged change. */
export interface KeyState {
  readonly key: Omit<KeyRecord, "workspaceEnabled">;
  readonly workspaceEnabled: boolean;
}
