import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import {
  createWorkspace,
  expectError,
  expectInvalid,
  expectSuccess,
  post,
  postText,
  send,
} from "../../support/clients/http-requests.js";
import { openFileService } from "../../support/file-service.js";
import { openTestApp } from "../../support/harness.js";

const path = "/v2/identities.createIdentity";

const { origin, key } = await openFileService();
afterAll(async () => {
  // None of the refused requests stored anything, and the server still serves.
  expect(expectSuccess(await send(origin, "/v1/identities.listIdentities", { method: "GET", key }))).toEqual([]);
  expect(expectSuccess(await post(origin, "/v1/keys.listKeys", key, {}))).toHaveLength(1);
});

describe("invalid JSON is refused, and the error names the body", () => {
  it.each([
    ["truncated JSON", '{"externalId":"a"'],
    ["without a value", '{"externalId":}'],
    ["plain text", "externalId=a"],
    ["single quotes", "{'externalId':'a'}"],
    ["a trailing comma", '{"externalId":"a",}'],
    ["a second value after the first", '{"externalId":"a"} {"externalId":"b"}'],
    ["a raw line break in a string", '{"externalId":"a\nb"}'],
    ["a NUL byte", "\0"],
    ["only whitespace", "  \n "],
    ["NaN", '{"meta":{"a":NaN}}'],
    ["undefined", "undefined"],
  ])("%s", async (_case, text) => {
    expect(expectInvalid(await postText(origin, path, key, text))).toEqual(["body"]);
  });

  it("invalid UTF-8", async () => {
    const body = Buffer.concat([Buffer.from('{"externalId":"'), Buffer.from([0xc3, 0x28]), Buffer.from('"}')]);
    expect(expectInvalid(await postText(origin, path, key, body))).toEqual(["body"]);
  });

  it.each([
    ["an unquoted value", '{"key":lk_topsecret_topsecret_topsecret,"externalId":"abcdefghijklmnopqrstuvwxyz"}'],
    ["a short unquoted value", '{"key":topsecret}'],
    ["a long word", `topsecret${"!".repeat(50)}`],
    ["a long string before the syntax error", `{"externalId":"${"topsecret ".repeat(20)}",topsecret}`],
    ["a word that only looks like JSON", "topsecret"],
  ])("the error does not quote the body, which may contain a secret: %s", async (_case, text) => {
    const { detail, errors } = expectError(await postText(origin, path, key, text), 400, "application/invalid_input");
    expect(`${detail} ${JSON.stringify(errors)}`).not.toMatch(/opsecre/);
  });
});

describe("JSON that is not an object is refused, and the error names the body", () => {
  it.each(["[]", '[{"externalId":"a"}]', '"text"', "42", "null", "true"])("%s", async (text) => {
    expect(expectInvalid(await postText(origin, path, key, text))).toEqual(["body"]);
  });

  it("arrays nested 10,000 levels deep", async () => {
    const text = "[".repeat(10_000) + "]".repeat(10_000);
    expect(expectInvalid(await postText(origin, path, key, text))).toEqual(["body"]);
  });
});

describe("the largest valid body is accepted", () => {
  it.each([
    ["HTTP/JSON", "/v2/keys.createKey"],
    ["Connect", "/latchkey.v1.KeysService/CreateKey"],
  ])("16 KiB of meta with each character escaped, and 100 long permissions (%s)", async (_protocol, createKey) => {
    const app = await openTestApp();
    onTestFinished(() => app.close());
    const { key } = await createWorkspace(app.httpUrl);
    const text = "x".repeat(16 * 1024 - '{"text":""}'.length);
    const permissions = Array.from({ length: 100 }, (_, index) => `p${index}.`.padEnd(100, "x"));
    const name = "🗝".repeat(255);
    const escapeX = (text: string) => text.replaceAll("x", "\\u0078");
    const meta = `{"\\u0074\\u0065\\u0078\\u0074":"${escapeX(text)}"}`;
    const body = `{"name":"${name}","permissions":${JSON.stringify(permissions)},"meta":${meta}}`;
    expect((await postText(app.httpUrl, createKey, key, body)).status).toBe(200);
    const [, created] = expectSuccess(await post(app.httpUrl, "/v1/keys.listKeys", key, {})) as { meta?: unknown }[];
    expect(created?.meta).toEqual({ text });
  });
});

describe("a body with invalid fields is refused, and the error names every invalid field", () => {
  it("an unknown field", async () => {
    expect(expectInvalid(await post(origin, path, key, { externalId: "a", surprise: 1 }))).toEqual(["surprise"]);
  });

  it("a field under its proto name", async () => {
    expect(expectInvalid(await post(origin, path, key, { external_id: "a" }))).toContain("external_id");
  });

  it.each(["__proto__", "constructor", "toString", "hasOwnProperty", "$typeName"])("a field named %j", async (name) => {
    const response = await postText(origin, path, key, `{"externalId":"a",${JSON.stringify(name)}:{"polluted":true}}`);
    const { errors } = expectError(response, 400, "application/invalid_input");
    expect(errors.map(({ location }) => location)).toEqual([name]);
    expect(Object.hasOwn(Object.prototype, "polluted")).toBe(false);
  });

  it("wrong types in all fields", async () => {
    const wrong = { name: 1, prefix: true, externalId: {}, permissions: "*", meta: [], expires: "soon", enabled: 1 };
    expect(expectInvalid(await post(origin, "/v2/keys.createKey", key, wrong))).toEqual(Object.keys(wrong).sort());
  });

  it("wrong types and unknown fields together", async () => {
    const response = await post(origin, path, key, { externalId: 1, meta: "text", surprise: null });
    expect(expectInvalid(response)).toEqual(["externalId", "meta", "surprise"]);
  });

  it("items of an array", async () => {
    const response = await post(origin, "/v2/keys.createKey", key, { permissions: ["keys.read", 1, null] });
    expect(expectInvalid(response)).toEqual(["permissions[1]", "permissions[2]"]);
  });

  it.each([[0], [101], [1.5], [2 ** 31], [1e300], ["10"], [true], [[]], [{}]])("the page limit %j", async (limit) => {
    expect(expectInvalid(await post(origin, "/v1/keys.listKeys", key, { limit }))).toEqual(["limit"]);
  });

  it.each([1.5, 1e300, 2 ** 53, Number.MAX_SAFE_INTEGER, -1, 0])("the expiry %j", async (expires) => {
    expect(expectInvalid(await post(origin, "/v2/keys.createKey", key, { expires }))).toEqual(["expires"]);
  });

  it("meta nested 10,000 levels deep", async () => {
    const nested = '{"a":'.repeat(10_000) + 1 + "}".repeat(10_000);
    expect(expectInvalid(await postText(origin, path, key, `{"externalId":"a","meta":${nested}}`))).toEqual(["meta"]);
  });

  it("arrays nested 10,000 levels deep in a string field", async () => {
    const nested = "[".repeat(10_000) + "]".repeat(10_000);
    expect(expectInvalid(await postText(origin, path, key, `{"externalId":${nested}}`))).toEqual(["externalId"]);
  });
});
