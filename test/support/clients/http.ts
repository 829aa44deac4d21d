import { expect } from "vitest";
import { keep } from "../artifacts.js";
import { type HttpRoute, operationOf } from "../operations.js";
import { type CallerCredential, type HeaderLines, headersOf } from "./headers.js";
import { toBody } from "./messages.js";
import { errorTable, type Outcome, requestIdForm, type Success } from "./outcome.js";
import type { ProtocolClient } from "./protocol-client.js";

const typeForm = /^(http:\/\/127\.0\.0\.1:\d+)\/api-reference\/errors-v2\/service\/([a-z]+\/[a-z_]+)$/;

/** The HTTP/JSON protocol, with fetch, on the first documented route of each operation. */
export function openHttpClient(httpUrl: string): ProtocolClient {
  return {
    name: "http",
    call: (operation, credential, request, headers) => {
      const { routes, rpc } = operationOf(operation);
      const isList = rpc.output.fields.some(({ name }) => name === "pagination");
      return sendRequest(httpUrl, routes[0], credential, request, headers).then((response) =>
        readResponse(response, isList),
      );
    },
    close: () => {},
  };
}

/** Sends a request on any route: as a JSON body by POST, as query parameters by GET. */
export function sendRequest(
  httpUrl: string,
  [method, path, bodyField]: HttpRoute,
  credential: CallerCredential,
  request: Readonly<Record<string, unknown>>,
  more?: HeaderLines,
): Promise<Response> {
  const url = new URL(path, httpUrl);
  const headers = new Headers(headersOf(credential, more));
  if (method === "GET") {
    for (const [name, value] of Object.entries(request)) url.searchParams.append(name, String(value));
    return fetch(url, { headers });
  }
  headers.set("content-type", "application/json");
  return fetch(url, { method, headers, body: JSON.stringify(toBody(request, bodyField)) });
}

/** Checks the exact envelope of a success or an error, and converts it. */
export async function readResponse(response: Response, isList: boolean): Promise<Outcome> {
  const mediaTypes = response.status === 200 ? /^application\/json\b/ : /^application\/(problem\+)?json\b/;
  expect(response.headers.get("content-type")).toMatch(mediaTypes);
  const text = await response.text();
  if (response.status !== 200) keep("refusals", text);
  const body = JSON.parse(text) as Record<string, Record<string, unknown>>;
  expect(Object.keys(body["meta"] ?? {})).toEqual(["requestId"]);
  expect(body["meta"]?.["requestId"]).toMatch(requestIdForm);
  expect(response.headers.get("x-request-id")).toBe(body["meta"]?.["requestId"]);
  return response.status === 200 ? readSuccess(body, isList) : readFailure(response, body);
}

function readSuccess(body: Record<string, unknown>, isList: boolean): Outcome {
  expect(Object.keys(body).sort()).toEqual(isList ? ["data", "meta", "pagination"] : ["data", "meta"]);
  const { data, pagination } = body;
  return isList ? ({ ok: true, data, pagination } as Success) : { ok: true, data };
}

function readFailure(response: Response, body: Record<string, Record<string, unknown>>): Outcome {
  expect(Object.keys(body).sort()).toEqual(["error", "meta"]);
  const { detail, status, title, type, errors, ...more } = body["error"] ?? {};
  const [, , code = ""] = typeForm.exec(String(type)) ?? [];
  expect(errorTable, `the type ${type}`).toHaveProperty([code]);
  expect(more, "further fields of the error").toEqual({});
  expect(status).toBe(response.status);
  expect({ code, status, title }).toEqual({ code, status: errorTable[code]?.http, title: errorTable[code]?.title });
  expect(detail).toEqual(expect.stringMatching(/\w/));
  expect(errors !== undefined, "only invalid input has error.errors").toBe(code === "application/invalid_input");
  if (status === 401) expect(response.headers.get("www-authenticate")).toMatch(/^Bearer\b/);
  const fields = errors as { location: string; message: string }[] | undefined;
  return { ok: false, code, detail: String(detail), ...(fields && { fields }) };
}
