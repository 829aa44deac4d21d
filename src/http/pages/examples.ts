import { ErrorCode } from "../../../gen/latchkey/v1/errors_pb.js";
import {
  type ApiError,
  type ApiErrorCode,
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
  payloadTooLarge,
  quotaExceeded,
  rateLimited,
  routeNotFound,
  serviceUnavailable,
  unexpectedError,
  unknownKey,
  unsupportedMediaType,
  workspaceDisabled,
  workspaceNotFound,
} from "../../errors.js";
import { maxMessageBytes } from "../../rpc/pipeline.js";

/** How a failure is shown on its page. */
export interface Example {
  readonly answer: ApiError;
  /** Whether the command is answered by the failure, or gets past it: some cannot be had by asking. */
  readonly effect: "provokes" | "mends";
  /** What to know before the command is run. */
  readonly given: string;
  /** For the shell. `$API` is this service's address; other variables are the reader's to set. */
  readonly command: string;
}

const bearerKey = `-H "Authorization: Bearer $KEY"`;
const typeJson = `-H 'Content-Type: application/json'`;
const listKeys = `curl -X POST $API/v1/keys.listKeys`;
const anyKey = "`$KEY` is a key of yours.";

/** Every failure once, as it is answered; a test runs the commands and compares. */
export const examples: Record<ApiErrorCode, Example> = {
  [ErrorCode.AUTHENTICATION_MISSING]: {
    answer: missingCredential(),
    effect: "provokes",
    given: "A call without any credential.",
    command: listKeys,
  },
  [ErrorCode.AUTHENTICATION_MALFORMED]: {
    answer: malformedCredential("The credential is not an API key: its form or its checksum is wrong. Copy it again."),
    effect: "provokes",
    given: "A credential that cannot be a key.",
    command: `${listKeys} \\\n  -H "Authorization: Bearer not-a-key"`,
  },
  [ErrorCode.AUTHENTICATION_KEY_NOT_FOUND]: {
    answer: unknownKey(),
    effect: "provokes",
    given: "This key has the right form and checksum, and nobody holds it.",
    command: `${listKeys} \\\n  -H "Authorization: Bearer lk_0000000000000000000000000000000002WgCEo"`,
  },
  [ErrorCode.AUTHENTICATION_KEY_EXPIRED]: {
    answer: keyExpired(),
    effect: "provokes",
    given: "`$KEY` is a key past its expiry.",
    command: `${listKeys} \\\n  ${bearerKey}`,
  },
  [ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED]: {
    answer: workspaceDisabled(),
    effect: "provokes",
    given: "`$KEY` is any key of a disabled workspace.",
    command: `${listKeys} \\\n  ${bearerKey}`,
  },
  [ErrorCode.AUTHORIZATION_KEY_DISABLED]: {
    answer: keyDisabled(),
    effect: "provokes",
    given: "`$KEY` is a disabled key of an enabled workspace.",
    command: `${listKeys} \\\n  ${bearerKey}`,
  },
  [ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS]: {
    answer: missingScope("keys.read"),
    effect: "provokes",
    given: "`$KEY` is a key that does not hold `keys.read`.",
    command: `${listKeys} \\\n  ${bearerKey}`,
  },
  [ErrorCode.LIMITS_RATE_LIMITED]: {
    answer: rateLimited(600, 60, 12_000),
    effect: "mends",
    given: "`$KEY` is a key of yours. With `--retry`, curl waits for as long as `Retry-After` says.",
    command: `curl --retry 3 -X POST $API/v1/keys.listKeys \\\n  ${bearerKey}`,
  },
  [ErrorCode.LIMITS_QUOTA_EXCEEDED]: {
    answer: quotaExceeded("keys", 1_000_000),
    effect: "mends",
    given: "`$KEY` is a key of yours, `$KEY_ID` one that is not needed any more. This makes room for another.",
    command: `curl $API/v2/keys.deleteKey \\
  ${bearerKey} ${typeJson} \\
  -d "{\\"keyId\\": \\"$KEY_ID\\"}"`,
  },
  [ErrorCode.DATA_IDENTITY_NOT_FOUND]: {
    answer: identityNotFound(),
    effect: "provokes",
    given: anyKey,
    command: `curl $API/v1/identities.getIdentity \\
  ${bearerKey} ${typeJson} \\
  -d '{"externalId": "nobody"}'`,
  },
  [ErrorCode.DATA_KEY_NOT_FOUND]: {
    answer: keyNotFound(),
    effect: "provokes",
    given: anyKey,
    command: `curl $API/v2/keys.getKey \\
  ${bearerKey} ${typeJson} \\
  -d '{"keyId": "key_00000000000000000000000000"}'`,
  },
  [ErrorCode.DATA_WORKSPACE_NOT_FOUND]: {
    answer: workspaceNotFound(),
    effect: "provokes",
    given: "`$OPERATOR` is the operator's credential.",
    command: `curl $API/v2/workspaces.getWorkspace \\
  -H "Authorization: Bearer $OPERATOR" ${typeJson} \\
  -d '{"workspaceId": "ws_00000000000000000000000000"}'`,
  },
  [ErrorCode.DATA_IDENTITY_ALREADY_EXISTS]: {
    answer: identityAlreadyExists(),
    effect: "provokes",
    given: "`$KEY` is a key of yours. The second time, if not the first, this is refused.",
    command: `curl $API/v2/identities.createIdentity \\
  ${bearerKey} ${typeJson} \\
  -d '{"externalId": "user_42"}'`,
  },
  [ErrorCode.DATA_IDEMPOTENCY_CONFLICT]: {
    answer: idempotencyConflict(),
    effect: "provokes",
    given: "`$KEY` is a key of yours. Two different requests with one Idempotency-Key: the second is refused.",
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
    effect: "provokes",
    given: anyKey,
    command: `curl $API/v1/keys.listKeys \\
  ${bearerKey} ${typeJson} \\
  -d '{"limit": 1000}'`,
  },
  [ErrorCode.APPLICATION_ROUTE_NOT_FOUND]: {
    answer: routeNotFound(),
    effect: "provokes",
    given: "A path in the wrong letter case. No credential is needed to learn that it does not exist.",
    command: `curl -X POST $API/v1/keys.listkeys`,
  },
  [ErrorCode.APPLICATION_METHOD_NOT_ALLOWED]: {
    answer: methodNotAllowed("GET", "/v1/keys.listKeys", ["POST"]),
    effect: "provokes",
    given: "A GET, where POST is wanted. Add `-i` to see the `Allow` header.",
    command: `curl $API/v1/keys.listKeys`,
  },
  [ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE]: {
    answer: unsupportedMediaType("The body must be JSON: send it with `Content-Type: application/json`."),
    effect: "provokes",
    given: "`$KEY` is a key of yours. JSON that is not declared as such.",
    command: `curl $API/v1/keys.listKeys \\
  ${bearerKey} \\
  -d '{"limit": 10}'`,
  },
  [ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE]: {
    answer: payloadTooLarge("body", maxMessageBytes),
    effect: "provokes",
    given: "`$KEY` is a key of yours. Two million zeros are more than is read.",
    command: `head -c 2000000 /dev/zero | curl $API/v1/keys.listKeys \\
  ${bearerKey} ${typeJson} \\
  --data-binary @-`,
  },
  [ErrorCode.APPLICATION_DEADLINE_EXCEEDED]: {
    answer: deadlineExceeded(),
    effect: "mends",
    given: "`$KEY` is a key of yours. What only reads can be repeated without a thought.",
    command: `curl --retry 3 -X POST $API/v1/keys.listKeys \\\n  ${bearerKey}`,
  },
  [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE]: {
    answer: serviceUnavailable(undefined),
    effect: "mends",
    given: "This waits until the service can judge keys again.",
    command: `until curl -fsS $API/readyz; do sleep 1; done`,
  },
  [ErrorCode.APPLICATION_UNEXPECTED_ERROR]: {
    answer: unexpectedError(undefined),
    effect: "mends",
    given: "`$KEY` is a key of yours. If it stays, the header `X-Request-Id` is what to report.",
    command: `curl -i --retry 3 -X POST $API/v1/keys.listKeys \\\n  ${bearerKey}`,
  },
};
