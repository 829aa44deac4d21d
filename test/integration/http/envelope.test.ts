import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  ask,
  createWorkspace,
  expectFailure,
  expectSuccess,
  post,
  postText,
  sendBytes,
} from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";

let app: TestApp;
let origin: string;
let key: string;

beforeAll(async () => {
  app = await openTestApp();
  origin = app.httpUrl;
  key = (await createWorkspace(origin)).key;
});
afterAll(() => app.close());

describe("a success", () => {
  it("is meta with the request id, and data", async () => {
    const created = await post(origin, "/v2/identities.createIdentity", key, { externalId: "shape" });
    expect(expectSuccess(created)).toStrictEqual({ identityId: expect.stringMatching(/^id_[0-9a-z]{26}$/) });
    expect(Object.keys(JSON.parse(created.text))).toEqual(["meta", "data"]);
  });

  it("of a list is an array as data, and pagination without a cursor on the last page", async () => {
    const list = await post(origin, "/v1/keys.listKeys", key, {});
    expect(expectSuccess(list)).toEqual([expect.objectContaining({ enabled: true })]);
    expect(JSON.parse(list.text).pagination).toStrictEqual({ hasMore: false });
  });

  it("of an operation with nothing to say has an empty object as data", async () => {
    await post(origin, "/v2/identities.createIdentity", key, { externalId: "short-lived" });
    const deleted = await post(origin, "/v2/identities.deleteIdentity", key, { externalId: "short-lived" });
    expect(expectSuccess(deleted)).toStrictEqual({});
  });

  it("has another request id for every request", async () => {
    const answers = await Promise.all([1, 2, 3].map(() => ask(origin, "/v2/liveness", { method: "GET" })));
    const ids = answers.map((answer) => {
      expect(expectSuccess(answer)).toStrictEqual({ status: "alive" });
      return answer.headers["x-request-id"];
    });
    expect(new Set(ids).size).toBe(3);
  });
});

describe("no cache keeps an answer, and no browser takes it for something else:", () => {
  const kept = { "cache-control": "no-store", "x-content-type-options": "nosniff" };

  it("a success, through each protocol", async () => {
    for (const path of ["/v2/keys.createKey", "/latchkey.v1.KeysService/CreateKey"]) {
      expect((await post(origin, path, key, {})).headers).toMatchObject(kept);
    }
  });

  it("a failure, through each protocol, and of what is not HTTP", async () => {
    for (const path of ["/v2/keys.createKey", "/latchkey.v1.KeysService/CreateKey", "/nothing"]) {
      expect((await post(origin, path, undefined, {})).headers).toMatchObject(kept);
    }
    expect((await sendBytes(origin, "nonsense\r\n\r\n")).headers).toMatchObject(kept);
  });
});

describe("an empty body means {}", () => {
  it("with a JSON content type and Content-Length 0", async () => {
    expectSuccess(await postText(origin, "/v1/keys.listKeys", key, ""));
  });

  it("with a JSON content type and neither Content-Length nor chunks", async () => {
    const headers = { "content-type": "application/json; charset=utf-8" };
    expectSuccess(await ask(origin, "/v1/keys.listKeys", { key, headers }));
  });

  it("with a JSON content type and an empty chunked body", async () => {
    const headers = { "content-type": "application/json", "transfer-encoding": "chunked" };
    expectSuccess(await ask(origin, "/v1/keys.listKeys", { key, headers }));
  });

  it("with no content type at all", async () => {
    expectSuccess(await ask(origin, "/v2/keys.listKeys", { key }));
  });

  it("and required fields are then asked for by name", async () => {
    const answer = await postText(origin, "/v2/identities.createIdentity", key, "");
    const { errors } = expectFailure(answer, 400, "application/invalid_input");
    expect(errors.map(({ location }) => location)).toEqual(["externalId"]);
  });
});

describe("a refused credential", () => {
  it("that is missing gets a bare Bearer challenge", async () => {
    const answer = await post(origin, "/v1/keys.listKeys", undefined, {});
    expectFailure(answer, 401, "authentication/missing");
    expect(answer.headers["www-authenticate"]).toMatch(/^Bearer\b/);
    expect(answer.headers["www-authenticate"]).not.toContain("error=");
  });

  it.each([
    ["another scheme", "Basic bGs6bGs="],
    ["nothing after Bearer", "Bearer"],
    ["two tokens", "Bearer lk_a lk_b"],
    ["text that is no key", "Bearer lk_nonsense"],
    ["a very long token", `Bearer ${"x".repeat(8_000)}`],
  ])("with %s is malformed, with a Bearer challenge", async (_what, authorization) => {
    const answer = await ask(origin, "/v1/keys.listKeys", { headers: { authorization } });
    expectFailure(answer, 401, "authentication/malformed");
    expect(answer.headers["www-authenticate"]).toMatch(/^Bearer\b.*error="invalid_token"/);
  });

  it("given twice is malformed, even if both are good", async () => {
    const twice = `authorization: Bearer ${key}\r\n`.repeat(2);
    const head = `POST /v1/keys.listKeys HTTP/1.1\r\nhost: a\r\nconnection: close\r\n${twice}\r\n`;
    const answer = await sendBytes(origin, head);
    expectFailure(answer, 401, "authentication/malformed");
  });

  it("learns nothing about the body, whatever is wrong with that", async () => {
    const headers = { "content-type": "application/xml", "content-encoding": "gzip" };
    expectFailure(await ask(origin, "/v1/keys.listKeys", { headers, body: "<a/>" }), 401, "authentication/missing");
    expectFailure(await postText(origin, "/v1/keys.listKeys", undefined, "{"), 401, "authentication/missing");
  });
});
