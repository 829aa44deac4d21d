import { ErrorCode } from "../../../gen/latchkey/v1/errors_pb.js";
import {
  type ApiError,
  type ApiErrorCode,
  apiNotFound,
  deadlineExceeded,
  idempotencyConflict,
  identityAlreadyExists,
  identityNotFound,
  invalidInput,
  keyDisabled,
  keyExpired,
  keyNotFound,
  malformedCredential,
  methodNotAllowed,
  missingCredential,
  missingScope,
  overrideNotFound,
  payloadTooLarge,
  permissionAlreadyExists,
  permissionInUse,
  permissionNotFound,
  quotaExceeded,
  rateLimited,
  roleAlreadyExists,
  roleNotFound,
  routeNotFound,
  serviceUnavailable,
  unexpectedError,
  unknownKey,
  unsupportedMediaType,
  workspaceDisabled,
  workspaceEnabled,
  workspaceNotFound,
} from "../../errors.js";
import { maxMessageBytes } from "../../rpc/pipeline.js";

/** The example on the page of an error. */
export interface Example {
  readonly answer: ApiError;
  /** Whether the command returns the error or recovers from it: a client cannot cause some errors on purpose. */
  readonly effect: "reproduces" | "recovers";
  /** The preconditions of the command. */
  readonly precondition: string;
  /** A shell command. `$API` is replaced by this service's address; the reader sets the other variables. */
  readonly command: string;
}

const bearerKey = `-H "Authorization: Bearer $KEY"`;
const typeJson = `-H 'Content-Type: application/json'`;
const listKeys = `curl -X POST $API/v1/keys.listKeys`;
const anyKey = "`$KEY` is one of your keys.";

/** One example for each error. A test runs the commands and compares the responses with these. */
export const examples: Record<ApiErrorCode, Example> = {
  [ErrorCode.AUTHENTICATION_MISSING]: {
    answer: missingCredential(),
    effect: "reproduces",
    precondition: "A call without any credential.",
    command: listKeys,
  },
  [ErrorCode.AUTHENTICATION_MALFORMED]: {
    answer: malformedCredential("The credential is not an API key: its form or its checksum is wrong. Copy it again."),
    effect: "reproduces",
    precondition: "A credential that cannot be a key.",
    command: `${listKeys} \\\n  -H "Authorization: Bearer not-a-key"`,
  },
  [ErrorCode.AUTHENTICATION_KEY_NOT_FOUND]: {
    answer: unknownKey(),
    effect: "reproduces",
    precondition: "This key has a valid format and checksum, but does not exist.",
    command: `${listKeys} \\\n  -H "Authorization: Bearer lk_0000000000000000000000000000000002WgCEo"`,
  },
  [ErrorCode.AUTHENTICATION_KEY_EXPIRED]: {
    answer: keyExpired(),
    effect: "reproduces",
    precondition: "`$KEY` is an expired key.",
    command: `${listKeys} \\\n  ${bearerKey}`,
  },
  [ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED]: {
    answer: workspaceDisabled(),
    effect: "reproduces",
    precondition: "`$KEY` is any key of a disabled workspace.",
    command: `${listKeys} \\\n  ${bearerKey}`,
  },
  [ErrorCode.AUTHORIZATION_KEY_DISABLED]: {
    answer: keyDisabled(),
    effect: "reproduces",
    precondition: "`$KEY` is a disabled key of an enabled workspace.",
    command: `${listKeys} \\\n  ${bearerKey}`,
  },
  [ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS]: {
    answer: missingScope("keys.read"),
    effect: "reproduces",
    precondition: "`$KEY` is a key without the scope `keys.read`.",
    command: `${listKeys} \\\n  ${bearerKey}`,
  },
  [ErrorCode.LIMITS_RATE_LIMITED]: {
    answer: rateLimited(600, 60, 12_000),
    effect: "recovers",
    precondition: "`$KEY` is one of your keys. With `--retry`, curl waits for the time in `Retry-After`.",
    command: `curl --retry 3 -X POST $API/v1/keys.listKeys \\\n  ${bearerKey}`,
  },
  [ErrorCode.LIMITS_QUOTA_EXCEEDED]: {
    answer: quotaExceeded("keys", 1_000_000),
    effect: "recovers",
    precondition:
      "`$KEY` is one of your keys, `$KEY_ID` the id of one that you no longer need. Deleting it frees quota.",
    command: `curl $API/v2/keys.deleteKey \\
  ${bearerKey} ${typeJson} \\
  -d "{\\"keyId\\": \\"$KEY_ID\\"}"`,
  },
  [ErrorCode.DATA_IDENTITY_NOT_FOUND]: {
    answer: identityNotFound(),
    effect: "reproduces",
    precondition: anyKey,
    command: `curl $API/v1/identities.getIdentity \\
  ${bearerKey} ${typeJson} \\
  -d '{"externalId": "nobody"}'`,
  },
  [ErrorCode.DATA_KEY_NOT_FOUND]: {
    answer: keyNotFound(),
    effect: "reproduces",
    precondition: anyKey,
    command: `curl $API/v2/keys.getKey \\
  ${bearerKey} ${typeJson} \\
  -d '{"keyId": "key_00000000000000000000000000"}'`,
  },
  [ErrorCode.DATA_WORKSPACE_NOT_FOUND]: {
    answer: workspaceNotFound(),
    effect: "reproduces",
    precondition: "`$OPERATOR` is the operator's credential.",
    command: `curl $API/v2/workspaces.getWorkspace \\
  -H "Authorization: Bearer $OPERATOR" ${typeJson} \\
  -d '{"workspaceId": "ws_00000000000000000000000000"}'`,
  },
  [ErrorCode.DATA_WORKSPACE_ENABLED]: {
    answer: workspaceEnabled(),
    effect: "reproduces",
    precondition: "`$OPERATOR` is the operator's credential, and `$WORKSPACE_ID` the id of an enabled workspace.",
    command: `curl $API/v2/workspaces.deleteWorkspace \\
  -H "Authorization: Bearer $OPERATOR" ${typeJson} \\
  -d "{\\"workspaceId\\": \\"$WORKSPACE_ID\\"}"`,
  },
  [ErrorCode.DATA_IDENTITY_ALREADY_EXISTS]: {
    answer: identityAlreadyExists(),
    effect: "reproduces",
    precondition: "`$KEY` is one of your keys. The second call at the latest is refused.",
    command: `curl $API/v2/identities.createIdentity \\
  ${bearerKey} ${typeJson} \\
  -d '{"externalId": "user_42"}'`,
  },
  [ErrorCode.DATA_API_NOT_FOUND]: {
    answer: apiNotFound(),
    effect: "reproduces",
    precondition: anyKey,
    command: `curl $API/v2/apis.getApi \\
  ${bearerKey} ${typeJson} \\
  -d '{"apiId": "api_00000000000000000000000000"}'`,
  },
  [ErrorCode.DATA_ROLE_NOT_FOUND]: {
    answer: roleNotFound("nobody"),
    effect: "reproduces",
    precondition: anyKey,
    command: `curl $API/v2/permissions.getRole \\
  ${bearerKey} ${typeJson} \\
  -d '{"role": "nobody"}'`,
  },
  [ErrorCode.DATA_ROLE_ALREADY_EXISTS]: {
    answer: roleAlreadyExists(),
    effect: "reproduces",
    precondition: "`$KEY` is one of your keys. The second call at the latest is refused.",
    command: `curl $API/v2/permissions.createRole \\
  ${bearerKey} ${typeJson} \\
  -d '{"name": "editor"}'`,
  },
  [ErrorCode.DATA_PERMISSION_NOT_FOUND]: {
    answer: permissionNotFound(),
    effect: "reproduces",
    precondition: anyKey,
    command: `curl $API/v2/permissions.getPermission \\
  ${bearerKey} ${typeJson} \\
  -d '{"permission": "unknown"}'`,
  },
  [ErrorCode.DATA_PERMISSION_ALREADY_EXISTS]: {
    answer: permissionAlreadyExists(),
    effect: "reproduces",
    precondition: "`$KEY` is one of your keys. The second call at the latest is refused.",
    command: `curl $API/v2/permissions.createPermission \\
  ${bearerKey} ${typeJson} \\
  -d '{"name": "Read documents", "slug": "documents.read"}'`,
  },
  [ErrorCode.DATA_PERMISSION_IN_USE]: {
    answer: permissionInUse(),
    effect: "reproduces",
    precondition: "`$KEY` is one of your keys. A role has the permission that the last call deletes.",
    command: `curl -s -o /dev/null $API/v2/permissions.createPermission \\
  ${bearerKey} ${typeJson} \\
  -d '{"name": "Print documents", "slug": "documents.print"}'
curl -s -o /dev/null $API/v2/permissions.createRole \\
  ${bearerKey} ${typeJson} \\
  -d '{"name": "printer", "permissions": ["documents.print"]}'
curl $API/v2/permissions.deletePermission \\
  ${bearerKey} ${typeJson} \\
  -d '{"permission": "documents.print"}'`,
  },
  [ErrorCode.DATA_OVERRIDE_NOT_FOUND]: {
    answer: overrideNotFound(),
    effect: "reproduces",
    precondition: anyKey,
    command: `curl $API/v2/ratelimit.getOverride \\
  ${bearerKey} ${typeJson} \\
  -d '{"namespace": "email.send", "identifier": "nobody"}'`,
  },
  [ErrorCode.DATA_IDEMPOTENCY_CONFLICT]: {
    answer: idempotencyConflict(),
    effect: "reproduces",
    precondition: "`$KEY` is one of your keys. Two different requests use one Idempotency-Key; the second is refused.",
    command: `curl -s -o /dev/null $API/v2/keys.createKey \\
  ${bearerKey} ${typeJson} \\
  -H 'Idempotency-Key: nightly-build' -d '{"name": "ci"}'
curl $API/v2/keys.createKey \\
  ${bearerKey} ${typeJson} \\
  -H 'Idempotency-Key: nightly-build' -d '{"name": "deploy"}'`,
  },
  [ErrorCode.APPLICATION_INVALID_INPUT]: {
    answer: invalidInput([
      { location: "limit", message: "must be greater than or equal to 1 and less than or equal to 100" },
    ]),
    effect: "reproduces",
    precondition: anyKey,
    command: `curl $API/v1/keys.listKeys \\
  ${bearerKey} ${typeJson} \\
  -d '{"limit": 1000}'`,
  },
  [ErrorCode.APPLICATION_ROUTE_NOT_FOUND]: {
    answer: routeNotFound(),
    effect: "reproduces",
    precondition: "A path in the wrong letter case. No credential is needed to get this error.",
    command: `curl -X POST $API/v1/keys.listkeys`,
  },
  [ErrorCode.APPLICATION_METHOD_NOT_ALLOWED]: {
    answer: methodNotAllowed("GET", "/v1/keys.listKeys", ["POST"]),
    effect: "reproduces",
    precondition: "A GET request to a path that requires POST. Add `-i` to see the `Allow` header.",
    command: `curl $API/v1/keys.listKeys`,
  },
  [ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE]: {
    answer: unsupportedMediaType("The body must be JSON: send it with `Content-Type: application/json`."),
    effect: "reproduces",
    precondition: "`$KEY` is one of your keys. The body is JSON, but its Content-Type is not.",
    command: `curl $API/v1/keys.listKeys \\
  ${bearerKey} \\
  -d '{"limit": 10}'`,
  },
  [ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE]: {
    answer: payloadTooLarge("body", maxMessageBytes),
    effect: "reproduces",
    precondition: "`$KEY` is one of your keys. A body of two million zero bytes exceeds the limit.",
    command: `head -c 2000000 /dev/zero | curl $API/v1/keys.listKeys \\
  ${bearerKey} ${typeJson} \\
  --data-binary @-`,
  },
  [ErrorCode.APPLICATION_DEADLINE_EXCEEDED]: {
    answer: deadlineExceeded(),
    effect: "recovers",
    precondition: "`$KEY` is one of your keys. Read-only calls are safe to retry.",
    command: `curl --retry 3 -X POST $API/v1/keys.listKeys \\\n  ${bearerKey}`,
  },
  [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE]: {
    answer: serviceUnavailable(undefined),
    effect: "recovers",
    precondition: "This waits until the service can verify keys again.",
    command: `until curl -fsS $API/readyz; do sleep 1; done`,
  },
  [ErrorCode.APPLICATION_UNEXPECTED_ERROR]: {
    answer: unexpectedError(undefined),
    effect: "recovers",
    precondition: "`$KEY` is one of your keys. If the error persists, report the value of the header `X-Request-Id`.",
    command: `curl -i --retry 3 -X POST $API/v1/keys.listKeys \\\n  ${bearerKey}`,
  },
};
