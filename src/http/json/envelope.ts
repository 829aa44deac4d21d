import type { DescMethod } from "@bufbuild/protobuf";
import { ErrorCode } from "../../../gen/latchkey/v1/errors_pb.js";
import { IdentitiesService } from "../../../gen/latchkey/v1/identities_service_pb.js";
import { type ApiError, type ApiErrorCode, catalogue, pathOf, retryAfterOf, titleOf } from "../../errors.js";
import { noStoreHeaders } from "../call.js";

/** The body of a successful response, around its encoded members. It ends with a newline, for people who use curl. */
export function successBody(requestId: string, members: string): string {
  return `{"meta":{"requestId":"${requestId}"},${members}}\n`;
}

/** The encoded members of a successful response whose data is no message. */
export function successMembers(data: unknown): string {
  return messageMembers(JSON.stringify(data));
}

/** The same for a message: its encoded data and, for a list, its encoded pagination. */
export function messageMembers(data: string, pagination?: string): string {
  return pagination === undefined ? `"data":${data}` : `"data":${data},"pagination":${pagination}`;
}

/** The body of an error response, in the same form for every error. */
export function errorBody(error: ApiError, requestId: string, docsBase: string): string {
  const { code, detail, options } = error;
  const envelope = {
    meta: { requestId },
    error: {
      detail,
      status: catalogue[code].status,
      title: titleOf(code),
      type: docsBase + errorPagePath(pathOf(code)),
      errors: options.fields,
    },
  };
  return `${JSON.stringify(envelope)}\n`;
}

/** The headers of an error response that depend on the error. */
export function errorHeaders(error: ApiError): Record<string, string> {
  const { code, options } = error;
  const retryAfter = retryAfterOf(error);
  return {
    ...(catalogue[code].status === 401 && { "www-authenticate": bearerChallenge(code) }),
    ...(retryAfter && { "retry-after": retryAfter }),
    ...(options.allow && { allow: options.allow.join(", ") }),
    ...(options.acceptEncoding && { "accept-encoding": options.acceptEncoding }),
  };
}

/** The media type of every JSON body, except some errors. */
const jsonType = "application/json";

/** The headers of JSON responses. The media type of an error may be another one. */
export const jsonHeaders = { "content-type": `${jsonType}; charset=utf-8`, ...noStoreHeaders } as const;

/** The media type of RFC 9457. The body is the same envelope. */
const problemType = "application/problem+json";

/** The errors that have the media type of RFC 9457, whatever the operation. */
const problems: ReadonlySet<ApiErrorCode> = new Set([
  ErrorCode.LIMITS_RATE_LIMITED,
  ErrorCode.APPLICATION_ROUTE_NOT_FOUND,
]);

/** The operation whose errors with these statuses have the media type of RFC 9457. */
const { name: problemMethod } = IdentitiesService.method.deleteIdentity;
const problemStatuses: ReadonlySet<number> = new Set([400, 401, 403, 404, 500]);

/**
 * The media type of an error response. The official Unkey client accepts each error under one media type only: 429 and
 * the errors of deleteIdentity under `application/problem+json`, all others under `application/json`. It would take an
 * unknown path for a missing resource if both had the same media type.
 *
 * @param method the called RPC; undefined before it is known
 */
export function errorMediaType(code: ApiErrorCode, method: Pick<DescMethod, "name" | "parent"> | undefined): string {
  const isProblemMethod = method?.name === problemMethod && method.parent.typeName === IdentitiesService.typeName;
  const isProblem = problems.has(code) || (isProblemMethod && problemStatuses.has(catalogue[code].status));
  return isProblem ? problemType : jsonType;
}

/** The path of the list of errors. The page of each error is below it. */
export const errorsPath = "/api-reference/errors-v2/service";

/** The path of the page of an error, for `<category>/<code>`. */
export function errorPagePath(path: string): string {
  return `${errorsPath}/${path}`;
}

/** RFC 6750: the challenge to a request without a credential has no error code. */
function bearerChallenge(code: ApiError["code"]): string {
  return pathOf(code) === "authentication/missing"
    ? `Bearer realm="latchkey"`
    : `Bearer realm="latchkey", error="invalid_token"`;
}
