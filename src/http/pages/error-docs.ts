import { ErrorCode } from "../../../gen/latchkey/v1/errors_pb.js";
import type { ApiErrorCode } from "../../errors.js";

/**
 * The explanation of one error code, for people. The error pages, the OpenAPI document and docs/reference/errors.md show
 * these sentences. Code is marked with backquotes, as in Markdown.
 */
export interface ErrorDoc {
  /** When the error occurs, in one sentence or two. */
  readonly when: string;
  /** Typical causes, one per entry. */
  readonly causes: readonly string[];
  /** What the caller can do about it. */
  readonly remedy: string;
  /** Errors that are easily confused with this one, or that often follow it. */
  readonly seeAlso: readonly ApiErrorCode[];
}

/** The explanation of every error. An error of the catalogue without an entry here does not compile. */
export const errorDocs: Record<ApiErrorCode, ErrorDoc> = {
  [ErrorCode.AUTHENTICATION_MISSING]: {
    when: "The request has no Authorization header.",
    causes: [
      "The client has no key configured, so it sends no header.",
      "A redirect or a proxy removed the header. Most clients do not send it to another host after a redirect.",
      "The key is in the query string, in a cookie or in the body. The service reads it only from the header.",
    ],
    remedy: "Send the header `Authorization: Bearer <API_KEY>`. Over gRPC, send it as the metadata `authorization`.",
    seeAlso: [ErrorCode.AUTHENTICATION_MALFORMED],
  },
  [ErrorCode.AUTHENTICATION_MALFORMED]: {
    when: "The Authorization header is not `Bearer <API_KEY>`, or the key has the wrong format or checksum.",
    causes: [
      "The variable for the key is empty, so nothing follows the word `Bearer`.",
      "The word `Bearer` is missing, or the client uses another scheme such as `Basic`.",
      "The key was truncated or altered. Its last six characters are a checksum of the rest.",
      "The credential is for something else: it is a key of another service, or the operator credential of another installation.",
      "The request has more than one Authorization header.",
    ],
    remedy: "Copy the whole key again, without quotes, spaces or line breaks. Send exactly one Authorization header.",
    seeAlso: [ErrorCode.AUTHENTICATION_MISSING, ErrorCode.AUTHENTICATION_KEY_NOT_FOUND],
  },
  [ErrorCode.AUTHENTICATION_KEY_NOT_FOUND]: {
    when: "The key has the right format, but it does not exist in this service, or it was deleted.",
    causes: [
      "The key was deleted with keys.deleteKey.",
      "The API or the workspace of the key was deleted.",
      "The key belongs to another installation. For example, a key of a test installation does not exist in production.",
      "The database was restored to a time before the key was created.",
    ],
    remedy:
      "Check that the key belongs to this installation. If the key was deleted, create another with keys.createKey.",
    seeAlso: [ErrorCode.AUTHENTICATION_MALFORMED, ErrorCode.AUTHENTICATION_KEY_EXPIRED, ErrorCode.DATA_KEY_NOT_FOUND],
  },
  [ErrorCode.AUTHENTICATION_KEY_EXPIRED]: {
    when: "The key has expired.",
    causes: [
      "The key has an `expires` time, and this time has passed.",
      "The key was replaced with keys.rerollKey, and the grace period of the old secret is over.",
    ],
    remedy: "Create another key with keys.createKey, and use it.",
    seeAlso: [ErrorCode.AUTHENTICATION_KEY_NOT_FOUND, ErrorCode.AUTHORIZATION_KEY_DISABLED],
  },
  [ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED]: {
    when: "The workspace of the API key is disabled. All keys of the workspace are refused, whether they are enabled or not.",
    causes: [
      "A bill is unpaid, or a usage limit or quota was exceeded.",
      "The terms of service were violated, or suspicious activity is being investigated.",
      "The owner asked for it, the account is being closed, or the workspace is being transferred to another owner.",
    ],
    remedy:
      "Ask the operator of the service why the workspace is disabled. After the operator enables it again, its keys work, except those that are disabled themselves.",
    seeAlso: [ErrorCode.AUTHORIZATION_KEY_DISABLED],
  },
  [ErrorCode.AUTHORIZATION_KEY_DISABLED]: {
    when: "The key itself is disabled.",
    causes: [
      "The key was disabled: with keys.updateKey and `enabled` false, or on the command line.",
      "The key was created disabled, and has not been enabled yet.",
    ],
    remedy:
      "Use another key of the workspace. Or enable this key: call keys.updateKey with `enabled` true, using a key that has the scope `keys.update`.",
    seeAlso: [ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED, ErrorCode.AUTHENTICATION_KEY_EXPIRED],
  },
  [ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS]: {
    when: "The credential does not allow this operation: the key lacks the scope, or the operation needs another kind of credential.",
    causes: [
      "The key was created without the scope. A key without scopes can only be verified. `permissions` are for your own application; they allow nothing in this service.",
      "The request grants a scope that the calling key does not have, or it changes, rerolls or deletes a key that has scopes beyond those of the calling key.",
      "The calling key tries to enable itself or to extend its own expiry. Or it has an expiry, and the request would leave a key with scopes that expires later.",
      "The client used a key for a workspace operation, or the operator credential for any other operation.",
    ],
    remedy:
      "Use a key that has the scope named in the error. If no key of the workspace has it, the operator can create one with workspaces.createRootKey. Workspace operations need the operator credential. All other operations need a key of the workspace.",
    seeAlso: [ErrorCode.AUTHORIZATION_KEY_DISABLED, ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED],
  },
  [ErrorCode.LIMITS_RATE_LIMITED]: {
    when: "The workspace has reached its rate limit. Requests of all its keys, over all protocols and on all replicas, count together.",
    causes: [
      "A client calls in a loop, or retries failed calls without a delay.",
      "Several clients share the workspace, and together they exceed its limit.",
      "The limit of the installation (`RATE_LIMIT`) is too low for this workspace.",
    ],
    remedy:
      "Retry after the delay in `Retry-After`; over gRPC, after the delay in `RetryInfo`. The header `RateLimit` of every response contains the number of requests that are left.",
    seeAlso: [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE, ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED],
  },
  [ErrorCode.LIMITS_QUOTA_EXCEEDED]: {
    when: "The workspace has reached its quota of keys, identities or stored bytes, or a namespace has its maximum number of overrides. Operations that only remove something are never refused because of a quota: disabling, deleting, and reducing permissions.",
    causes: [
      "Clients create keys or identities continually, and nothing deletes those that are no longer needed.",
      "The audit events of many changes count as stored bytes until they are older than `AUDIT_RETENTION_DAYS`.",
      "The quota of the installation (`QUOTA_KEYS`, `QUOTA_IDENTITIES`, `QUOTA_STORED_MB`) is too low for this workspace.",
      "A namespace of rate limits has the maximum number of overrides, 1,000, or of overrides with `*`, 100.",
    ],
    remedy:
      "Delete keys with keys.deleteKey and identities with identities.deleteIdentity, or ask the operator of the service for a larger quota. A retry without either of these fails again.",
    seeAlso: [ErrorCode.LIMITS_RATE_LIMITED, ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED],
  },
  [ErrorCode.DATA_IDENTITY_NOT_FOUND]: {
    when: "The identity does not exist in the caller's workspace: the identifier is mistyped, its letter case differs, the identity was deleted, or it belongs to another workspace.",
    causes: [
      "The identifier is mistyped, or an `externalId` is sent as an `identityId`.",
      "The letter case differs: an `externalId` is compared byte for byte.",
      "The identity was deleted.",
      "The identity belongs to another workspace than the calling key.",
    ],
    remedy:
      "Find the right identifier with identities.listIdentities. If the identity was deleted, create it again with identities.createIdentity.",
    seeAlso: [ErrorCode.DATA_IDENTITY_ALREADY_EXISTS, ErrorCode.DATA_KEY_NOT_FOUND],
  },
  [ErrorCode.DATA_KEY_NOT_FOUND]: {
    when: "The key does not exist in the caller's workspace: the identifier is mistyped, the key was deleted, or it belongs to another workspace.",
    causes: [
      "The identifier is mistyped, or the request contains the `start` or the name of the key instead.",
      "The key was deleted.",
      "The key belongs to another workspace than the calling key.",
      "The secret sent to keys.whoami is not a key of this workspace.",
    ],
    remedy: "Find the right identifier with keys.listKeys.",
    seeAlso: [ErrorCode.AUTHENTICATION_KEY_NOT_FOUND, ErrorCode.DATA_IDENTITY_NOT_FOUND],
  },
  [ErrorCode.DATA_WORKSPACE_NOT_FOUND]: {
    when: "No workspace has this identifier, or the workspace was deleted.",
    causes: [
      "The identifier is mistyped, or the request contains the name of the workspace instead.",
      "The workspace belongs to another installation.",
      "A key requests the audit events of another workspace than its own.",
    ],
    remedy: "Find the right identifier with workspaces.listWorkspaces.",
    seeAlso: [ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS, ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED],
  },
  [ErrorCode.DATA_WORKSPACE_ENABLED]: {
    when: "The workspace is enabled. Only a disabled workspace can be deleted.",
    causes: ["The workspace was never disabled.", "Another operator enabled the workspace again."],
    remedy:
      "If the workspace is to be deleted, disable it with workspaces.disableWorkspace, then repeat the deletion. It cannot be undone.",
    seeAlso: [ErrorCode.DATA_WORKSPACE_NOT_FOUND, ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED],
  },
  [ErrorCode.DATA_IDENTITY_ALREADY_EXISTS]: {
    when: "The workspace already has an identity with this externalId.",
    causes: [
      "The identity was created earlier, perhaps by a request whose response was lost.",
      "Two clients create the same identity concurrently. One succeeds, and the other gets this error.",
    ],
    remedy:
      "Use the existing identity (identities.getIdentity accepts the externalId), or choose another externalId. If the client sends an `Idempotency-Key`, a retry returns the first response instead of this error.",
    seeAlso: [ErrorCode.DATA_IDENTITY_NOT_FOUND, ErrorCode.DATA_IDEMPOTENCY_CONFLICT],
  },
  [ErrorCode.DATA_API_NOT_FOUND]: {
    when: "The API does not exist in the caller's workspace.",
    causes: [
      "The identifier is mistyped, or the request contains the name of the API instead.",
      "The API was deleted, and its keys with it.",
      "The API belongs to another workspace than the calling key.",
    ],
    remedy: "Find the right identifier with apis.listApis, or create an API with apis.createApi.",
    seeAlso: [ErrorCode.DATA_KEY_NOT_FOUND],
  },
  [ErrorCode.DATA_ROLE_NOT_FOUND]: {
    when: "A role does not exist in the caller's workspace. The detail names it.",
    causes: [
      "The name or the identifier of the role is mistyped, or its letter case differs.",
      "The role was deleted.",
      "The role belongs to another workspace than the calling key.",
    ],
    remedy: "Find the right role with permissions.listRoles, or create it with permissions.createRole.",
    seeAlso: [ErrorCode.DATA_PERMISSION_NOT_FOUND],
  },
  [ErrorCode.DATA_ROLE_ALREADY_EXISTS]: {
    when: "The workspace already has a role with this name.",
    causes: ["The role was created earlier, perhaps by a request whose response was lost."],
    remedy:
      "Use the existing role (permissions.getRole accepts the name), or choose another name. If the client sends an `Idempotency-Key`, a retry returns the first response instead of this error.",
    seeAlso: [ErrorCode.DATA_ROLE_NOT_FOUND, ErrorCode.DATA_IDEMPOTENCY_CONFLICT],
  },
  [ErrorCode.DATA_PERMISSION_NOT_FOUND]: {
    when: "The catalogue of the caller's workspace does not contain the permission.",
    causes: [
      "The identifier or the slug is mistyped, or its letter case differs.",
      "Keys and roles have the permission, but it was never added to the catalogue.",
    ],
    remedy: "Find the right permission with permissions.listPermissions, or add it with permissions.createPermission.",
    seeAlso: [ErrorCode.DATA_ROLE_NOT_FOUND],
  },
  [ErrorCode.DATA_PERMISSION_ALREADY_EXISTS]: {
    when: "The catalogue of the workspace already contains a permission with this slug.",
    causes: ["The permission was created earlier, perhaps by a request whose response was lost."],
    remedy:
      "Use the existing permission (permissions.getPermission accepts the slug), or choose another slug. If the client sends an `Idempotency-Key`, a retry returns the first response instead of this error.",
    seeAlso: [ErrorCode.DATA_PERMISSION_NOT_FOUND, ErrorCode.DATA_IDEMPOTENCY_CONFLICT],
  },
  [ErrorCode.DATA_PERMISSION_IN_USE]: {
    when: "A key or a role of the workspace still has the permission, so it cannot be removed from the catalogue.",
    causes: ["A key has the permission directly.", "A role has the permission."],
    remedy:
      "Remove the permission from keys with keys.removePermissions and from roles with permissions.setRolePermissions, then delete it.",
    seeAlso: [ErrorCode.DATA_PERMISSION_NOT_FOUND],
  },
  [ErrorCode.DATA_OVERRIDE_NOT_FOUND]: {
    when: "The namespace has no override for exactly this identifier.",
    causes: [
      "The namespace or the identifier is mistyped, or its letter case differs.",
      "An override with `*` applies to the identifier. It is found only by its own pattern.",
      "The override was deleted.",
    ],
    remedy: "Find the right override with ratelimit.listOverrides.",
    seeAlso: [ErrorCode.LIMITS_RATE_LIMITED],
  },
  [ErrorCode.DATA_IDEMPOTENCY_CONFLICT]: {
    when: "The same caller used this Idempotency-Key for another request and the response is still stored, by default for 24 hours.",
    causes: [
      "A client uses one `Idempotency-Key` for several changes. Each change needs its own.",
      "The client built a new request for the retry, with another time or random value in it.",
      "The `Idempotency-Key` was used for another operation.",
    ],
    remedy:
      "To retry a request, send it unchanged with its `Idempotency-Key`. For another request, choose another `Idempotency-Key`, such as a random UUID. This request changed nothing.",
    seeAlso: [ErrorCode.DATA_IDENTITY_ALREADY_EXISTS, ErrorCode.APPLICATION_DEADLINE_EXCEEDED],
  },
  [ErrorCode.APPLICATION_INVALID_INPUT]: {
    when: "The body, the query string or a field is invalid. `error.errors` lists the invalid fields and describes each error, ten at most.",
    causes: [
      "A field is missing, has the wrong type, or is out of range.",
      "A field or query parameter is misspelt. Unknown fields and parameters are refused, not ignored.",
      "The body is not valid JSON, or it is not UTF-8.",
      "A cursor was altered, or it comes from another list.",
    ],
    remedy: "Fix the listed fields and send the request again. This request changed nothing.",
    seeAlso: [ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE, ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE],
  },
  [ErrorCode.APPLICATION_ROUTE_NOT_FOUND]: {
    when: "The path does not exist.",
    causes: [
      "The path is misspelt. Paths are case-sensitive, and a trailing slash makes a difference.",
      "The operation is in another version. Some operations are in /v1 and /v2, most are only in /v2.",
      "Over gRPC, the stubs are newer than the service, or they belong to another service.",
    ],
    remedy: "Check the path, its version (/v1 or /v2) and its letter case.",
    seeAlso: [ErrorCode.APPLICATION_METHOD_NOT_ALLOWED],
  },
  [ErrorCode.APPLICATION_METHOD_NOT_ALLOWED]: {
    when: "The path exists, but it does not support this HTTP method.",
    causes: [
      "Almost every operation uses POST, including those that only read. By default, curl and browsers send GET.",
      "A redirect changed POST to GET, as happens in many clients.",
    ],
    remedy: "Use a method listed in the `Allow` header.",
    seeAlso: [ErrorCode.APPLICATION_ROUTE_NOT_FOUND],
  },
  [ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE]: {
    when: "The request body is not declared as uncompressed JSON. Over gRPC: the request is not gRPC, or it is compressed.",
    causes: [
      "The content type is missing or wrong. For example, `curl -d` without a header sends application/x-www-form-urlencoded.",
      "The body is compressed, or the headers declare a compression.",
    ],
    remedy: "Send `Content-Type: application/json` and no `Content-Encoding`. Over gRPC, turn off compression.",
    seeAlso: [ErrorCode.APPLICATION_INVALID_INPUT],
  },
  [ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE]: {
    when: "The request is larger than the limit of the service.",
    causes: [
      "The body is larger than 128 KiB.",
      "The headers together are larger than 16 KiB, often because of cookies, or there are more than 100 headers.",
    ],
    remedy: "Send a smaller request, for example with a smaller `meta`.",
    seeAlso: [ErrorCode.APPLICATION_INVALID_INPUT],
  },
  [ErrorCode.APPLICATION_DEADLINE_EXCEEDED]: {
    when: "The call took longer than its deadline. A change may or may not have taken effect.",
    causes: [
      "The client set a deadline, over gRPC or Connect, that was too short for the call.",
      "The database was slow or overloaded. A call without a deadline from the client may take 10 seconds.",
      "The request arrived too slowly. It must be complete within 30 seconds.",
    ],
    remedy:
      "Retry, with the same `Idempotency-Key` if the operation accepts one. Otherwise read the current state first. Over gRPC, set a longer deadline.",
    seeAlso: [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE],
  },
  [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE]: {
    when: "The service cannot serve the call at the moment: its database is unreachable or failing, the service is overloaded, or it is shutting down; `detail` says which. Requests are never allowed without an authorization decision.",
    causes: [
      "The database is restarting, failing over, or unreachable from the service.",
      "The database has no disk space, memory or connection left.",
      "A synchronous standby of the database has not confirmed the change. The change may or may not have taken effect.",
      "The request was a readiness probe, and the service is shutting down.",
      "The service is overloaded, and sheds calls before it starts to process them.",
      "The workspace has 1,000 lookups in flight in this replica. Calls with rate limit namespaces that are not cached, and verifiers with such keys, need some.",
    ],
    remedy: "Retry after the delay in `Retry-After`; over gRPC, after the delay in `RetryInfo`.",
    seeAlso: [ErrorCode.APPLICATION_DEADLINE_EXCEEDED, ErrorCode.APPLICATION_UNEXPECTED_ERROR],
  },
  [ErrorCode.APPLICATION_UNEXPECTED_ERROR]: {
    when: "An internal error occurred. The cause is in the service's log, with the request id.",
    causes: [
      "The service has a bug.",
      "The database returned an unexpected result, for example because its tables were changed manually.",
    ],
    remedy: "Retry. If the error persists, report the request id to the operator of the service.",
    seeAlso: [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE],
  },
};
