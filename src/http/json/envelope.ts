import { type ApiError, catalogue, pathOf, retryAfterOf, titleOf } from "../../errors.js";
import { neverCached } from "../call.js";

/** The body of a success, around its members as they were written. */
export function successBody(requestId: string, members: string): string {
  return `{"meta":{"requestId":"${requestId}"},${members}}`;
}

/** What a success has to tell: the data and, of a list, where it stands. */
export function successMembers(data: unknown, pagination?: unknown): string {
  const members = `"data":${JSON.stringify(data)}`;
  return pagination === undefined ? members : `${members},"pagination":${JSON.stringify(pagination)}`;
}

/** The body of a failure, the same for every kind. */
export function errorBody(failure: ApiError, requestId: string, docsBase: string): string {
  const { code, detail, more } = failure;
  return JSON.stringify({
    meta: { requestId },
    error: {
      detail,
      status: catalogue[code].status,
      title: titleOf(code),
      type: docsBase + errorPagePath(pathOf(code)),
      errors: more.fields,
    },
  });
}

/** The headers that a failure brings along. */
export function errorHeaders(failure: ApiError): Record<string, string> {
  const { code, more } = failure;
  const retryAfter = retryAfterOf(failure);
  return {
    ...(catalogue[code].status === 401 && { "www-authenticate": challengeOf(code) }),
    ...(retryAfter && { "retry-after": retryAfter }),
    ...(more.allow && { allow: more.allow.join(", ") }),
    ...(more.acceptEncoding && { "accept-encoding": more.acceptEncoding }),
  };
}

/** The headers of every answer in JSON. */
export const jsonHeaders = { "content-type": "application/json; charset=utf-8", ...neverCached } as const;

/** Where the errors are listed; the page about each lies below. */
export const errorsPath = "/api-reference/errors-v2/service";

/** Where the page about an error is served, for `<category>/<code>`. */
export function errorPagePath(path: string): string {
  return `${errorsPath}/${path}`;
}

/** RFC 6750: a request without a credential gets no error code. */
function challengeOf(code: ApiError["code"]): string {
  return pathOf(code) === "authentication/missing"
    ? `Bearer realm="latchkey"`
    : `Bearer realm="latchkey", error="invalid_token"`;
}
