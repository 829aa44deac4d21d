import type { OperationName } from "./operations.js";

/** A JSON object that the caller defines. */
export type Meta = Record<string, unknown>;

/** A rate limit of a key or an identity, as every protocol returns it. */
export interface RateLimitResponse {
  id: string;
  name: string;
  limit: number;
  duration: number;
  autoApply: boolean;
}

/** The state of a rate limit after a verification. */
export interface RateLimitStateResponse extends RateLimitResponse {
  exceeded: boolean;
  remaining: number;
  reset: number;
  perProcess?: boolean;
}

/** The credits of a key. `remaining` is null if the key needs none. */
export interface CreditsResponse {
  remaining: number | null;
  refill?: { interval: string; amount: number; refillDay?: number };
}

/** An API. */
export interface ApiResponse {
  id: string;
  name: string;
  createdAt: number;
}

/** A permission of the catalogue, or one that a key or a role has. */
export interface PermissionResponse {
  id: string;
  name: string;
  slug: string;
  description?: string;
}

/** A role with its permissions. */
export interface RoleResponse {
  id: string;
  name: string;
  description?: string;
  permissions: PermissionResponse[];
}

/** The state of a limit of the stand-alone limiter. */
export interface LimitResponse {
  limit: number;
  remaining: number;
  reset: number;
  overrideId?: string;
  perProcess?: boolean;
}

/** An override of the stand-alone limiter. */
export interface OverrideResponse {
  overrideId: string;
  namespace: string;
  identifier: string;
  limit: number;
  duration: number;
}

/** The verifications in one part of a period. */
export interface UsageResponse {
  time: number;
  total: number;
  valid: number;
  rateLimited: number;
  usageExceeded: number;
  insufficientPermissions: number;
  disabled: number;
  expired: number;
}

/** An identity as every protocol returns it, with HTTP's field names and timestamps. */
export interface IdentityResponse {
  identityId: string;
  id: string;
  externalId: string;
  meta: Meta;
  ratelimits: RateLimitResponse[];
  createdAt: number;
  updatedAt: number;
}

/** A key as every protocol returns it. */
export interface KeyResponse {
  keyId: string;
  workspaceId: string;
  start: string;
  name?: string;
  enabled: boolean;
  scopes: string[];
  permissions: string[];
  roles: string[];
  apiId?: string;
  credits?: CreditsResponse;
  ratelimits: RateLimitResponse[];
  identity?: IdentityResponse;
  meta?: Meta;
  expires?: number;
  createdAt: number;
  updatedAt: number;
  lastUsedAt?: number;
}

/** The result of a verification as every protocol returns it. */
export interface VerificationResponse
  extends Partial<Omit<KeyResponse, "workspaceId" | "start" | "scopes" | "apiId" | "credits" | "ratelimits">> {
  valid: boolean;
  code: string;
  credits?: number;
  ratelimits: RateLimitStateResponse[];
}

/** An audit event as every protocol returns it. */
export interface EventResponse {
  eventId: string;
  workspaceId: string;
  type: string;
  actor: string;
  resourceId: string;
  requestId: string;
  at: number;
  before?: Meta;
  after?: Meta;
}

/** A workspace as every protocol returns it. */
export interface WorkspaceResponse {
  workspaceId: string;
  name: string;
  enabled: boolean;
  disabledReason?: string;
  disabledNote?: string;
  disabledAt?: number;
  createdAt: number;
}

/** Whether a list has more pages, and the cursor of the next. */
export interface PaginationResponse {
  hasMore: boolean;
  cursor?: string;
}

/** The `data` of each operation's response. */
export interface ResponseData extends Record<OperationName, unknown> {
  listKeys: KeyResponse[];
  createKey: { keyId: string; key: string };
  getKey: KeyResponse;
  updateKey: KeyResponse;
  deleteKey: Record<string, never>;
  rerollKey: { keyId: string; key: string };
  verifyKey: VerificationResponse;
  whoami: KeyResponse;
  updateCredits: CreditsResponse;
  addPermissions: PermissionResponse[];
  removePermissions: PermissionResponse[];
  setPermissions: PermissionResponse[];
  addRoles: RoleResponse[];
  removeRoles: RoleResponse[];
  setRoles: RoleResponse[];
  migrateKeys: { migrated: { hash: string; keyId: string }[]; failed: string[] };
  getKeyUsage: UsageResponse[];
  getIdentity: IdentityResponse;
  listIdentities: IdentityResponse[];
  createIdentity: { identityId: string };
  updateIdentity: IdentityResponse;
  deleteIdentity: Record<string, never>;
  getIdentityUsage: UsageResponse[];
  createApi: { apiId: string };
  getApi: ApiResponse;
  listApis: ApiResponse[];
  deleteApi: Record<string, never>;
  createPermission: { permissionId: string };
  getPermission: PermissionResponse;
  listPermissions: PermissionResponse[];
  deletePermission: Record<string, never>;
  createRole: { roleId: string };
  getRole: RoleResponse;
  listRoles: RoleResponse[];
  setRolePermissions: PermissionResponse[];
  deleteRole: Record<string, never>;
  limit: LimitResponse & { success: boolean };
  multiLimit: {
    passed: boolean;
    limits: (LimitResponse & { namespace: string; identifier: string; passed: boolean })[];
  };
  setOverride: { overrideId: string };
  getOverride: OverrideResponse;
  listOverrides: OverrideResponse[];
  deleteOverride: Record<string, never>;
  createWorkspace: { workspaceId: string; keyId: string; key: string };
  createRootKey: { keyId: string; key: string };
  getWorkspace: WorkspaceResponse;
  listWorkspaces: WorkspaceResponse[];
  disableWorkspace: WorkspaceResponse;
  enableWorkspace: WorkspaceResponse;
  updateWorkspace: WorkspaceResponse;
  deleteWorkspace: Record<string, never>;
  listAuditEvents: EventResponse[];
}
