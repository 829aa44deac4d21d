import type { OperationName } from "./operations.js";

/** A JSON object that the caller defines. */
export type Meta = Record<string, unknown>;

/** An identity as every protocol returns it, with HTTP's field names and timestamps. */
export interface IdentityAnswer {
  identityId: string;
  externalId: string;
  meta: Meta;
  createdAt: number;
  updatedAt: number;
}

/** A key as every protocol returns it. */
export interface KeyAnswer {
  keyId: string;
  workspaceId: string;
  start: string;
  name?: string;
  enabled: boolean;
  scopes: string[];
  permissions: string[];
  identity?: IdentityAnswer;
  meta?: Meta;
  expires?: number;
  createdAt: number;
  updatedAt: number;
  lastUsedAt?: number;
}

/** The result of a verification as every protocol returns it. */
export interface VerificationAnswer extends Partial<Omit<KeyAnswer, "workspaceId" | "start" | "scopes">> {
  valid: boolean;
  code: string;
}

/** An audit event as every protocol returns it. */
export interface EventAnswer {
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
export interface WorkspaceAnswer {
  workspaceId: string;
  name: string;
  enabled: boolean;
  disabledReason?: string;
  disabledNote?: string;
  disabledAt?: number;
  createdAt: number;
}

/** Whether a list has more pages, and the cursor of the next. */
export interface PaginationAnswer {
  hasMore: boolean;
  cursor?: string;
}

/** The `data` of each operation's response. */
export interface Answers extends Record<OperationName, unknown> {
  listKeys: KeyAnswer[];
  createKey: { keyId: string; key: string };
  getKey: KeyAnswer;
  updateKey: KeyAnswer;
  deleteKey: Record<string, never>;
  rerollKey: { keyId: string; key: string };
  verifyKey: VerificationAnswer;
  whoami: KeyAnswer;
  getIdentity: IdentityAnswer;
  listIdentities: IdentityAnswer[];
  createIdentity: { identityId: string };
  updateIdentity: IdentityAnswer;
  deleteIdentity: Record<string, never>;
  createWorkspace: { workspaceId: string; keyId: string; key: string };
  createRootKey: { keyId: string; key: string };
  getWorkspace: WorkspaceAnswer;
  listWorkspaces: WorkspaceAnswer[];
  disableWorkspace: WorkspaceAnswer;
  enableWorkspace: WorkspaceAnswer;
  listAuditEvents: EventAnswer[];
}
