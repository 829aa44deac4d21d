import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { ConnectError } from "@connectrpc/connect";
import { codeToHttpStatus, errorToJson } from "@connectrpc/connect/protocol-connect";
import { findTrailerError, setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { describe, expect, it } from "vitest";
import { ApiError, errorCodes, grpcStatusOf, invalidInput, pathOf, serviceOverloaded } from "../../../src/errors.js";
import { toErrorResponse } from "../../../src/http/connect/error-response.js";
import { detailsOf } from "../../../src/rpc/status.js";

const requestId = "req_1";

const errors: [string, ApiError][] = [
  ...errorCodes.map((code): [string, ApiError] => [
    pathOf(code),
    new ApiError(code, "What happened: 100 % ünexpected."),
  ]),
  ["an error with invalid fields", invalidInput([{ location: "name", message: "must be shorter" }])],
  ["an error with a time to retry", serviceOverloaded()],
];

function responseTo(contentType: string, error: ApiError) {
  const request = new IncomingMessage(new Socket());
  request.method = "POST";
  request.headers["content-type"] = contentType;
  return toErrorResponse(request, error, requestId);
}

const byConnect = (error: ApiError) =>
  new ConnectError(error.detail, grpcStatusOf(error.code), undefined, detailsOf(error, requestId));

describe.each(errors)("%s is encoded as Connect's own server encodes it", (_case, error) => {
  it.each(["application/json", "application/proto"])("for %s", (contentType) => {
    const response = responseTo(contentType, error);
    expect(response?.status).toBe(codeToHttpStatus(grpcStatusOf(error.code)));
    expect(response?.headers["content-type"]).toBe("application/json");
    expect(JSON.parse(response?.body ?? "")).toEqual(errorToJson(byConnect(error), undefined));
  });

  it.each(["application/grpc-web+proto", "application/grpc-web+json"])("for %s", (contentType) => {
    const response = responseTo(contentType, error);
    expect(response).toMatchObject({ status: 200, body: "", headers: { "content-type": contentType } });
    expect(response?.headers).toMatchObject(Object.fromEntries(setTrailerStatus(new Headers(), byConnect(error))));
    expect(findTrailerError(new Headers(response?.headers))?.rawMessage).toBe(error.detail);
  });
});

it("a request of another content type has no response of an RPC protocol", () => {
  expect(responseTo("text/plain", serviceOverloaded())).toBeUndefined();
});
