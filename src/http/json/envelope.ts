import { type ApiError, catalogue, pathOf, retryAfterOf, titleOf } from "../../errors.js";
import { noStoreHeaders } from "../call.js";

/** The body of a successful response, around its encoded members. */
export function successBody(requestId: string, members: string): string {
  return `{"meta":{"requestId":"${requestId}"},${members}}`;
}

/** The encoded members of a successful response: the data and, for a list, the pagination. */
export function successMembers(data: unknown, pagination?: unknown): string {
  const members = `"data":${JSON.stringify(data)}`;
  return pagination === undefined ? members : `${members},"pagination":${JSON.stringify(pagination)}`;
}

/** The body of an error response, in the same form for every error. */
export function errorBody(error: ApiError, requestId: string, docsBase: string): string {
  const { code, detail, options } = error;
  return JSON.stringify({
    meta: { requestId },
    error: {
      detail,
      status: catalogue[code].status,
      title: titleOf(code),
      type: docsBase + errorPagePath(pathOf(code)),
      errors: options.fields,
    },
  });
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

/** The headers of every JSON response. */
export const jsonHeaders = { "content-type": "application/json; charset=utf-8", ...noStoreHeaders } as const;

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
