import type { OperationName } from "./operations.js";

/** A JSON object that the caller defines. */
export type Meta = Record<string, unknown>;

/** An identity as every protocol returns it, with HTTP's field names and timestamps. */
export interface IdentityResponse {
  identityId: string;
  externalId: string;
  meta: Meta;
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
  identity?: IdentityResponse;
  meta?: Meta;
  expires?: number;
  createdAt: number;
  updatedAt: number;
  lastUsedAt?: number;
}

/** The result of a verification as every protocol returns it. */
export interface VerificationResponse extends Partial<Omit<KeyResponse, "workspaceId" | "start" | "scopes">> {
  valid: boolean;
  code: string;
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
  getIdentity: IdentityResponse;
  listIdentities: IdentityResponse[];
  createIdentity: { identityId: string };
  updateIdentity: IdentityResponse;
  deleteIdentity: Record<string, never>;
  createWorkspace: { workspaceId: string; keyId: string; key: string };
  createRootKey: { keyId: string; key: string };
  getWorkspace: WorkspaceResponse;
  listWorkspaces: WorkspaceResponse[];
  disableWorkspace: WorkspaceResponse;
  enableWorkspace: WorkspaceResponse;
  listAuditEvents: EventResponse[];
}
