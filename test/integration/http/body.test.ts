import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import {
  ask,
  createWorkspace,
  expectFailure,
  expectInvalid,
  expectSuccess,
  post,
  postText,
} from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";

const path = "/v2/identities.createIdentity";

let app: TestApp;
let origin: string;
let key: string;

beforeAll(async () => {
  app = await openTestApp();
  origin = app.httpUrl;
  key = (await createWorkspace(origin)).key;
});
afterAll(async () => {
  // Whatever was sent, nothing was stored and the server still serves.
  expect(expectSuccess(await ask(origin, "/v1/identities.listIdentities", { method: "GET", key }))).toEqual([]);
  expect(expectSuccess(await post(origin, "/v1/keys.listKeys", key, {}))).toHaveLength(1);
  await app.close();
});

describe("a body that is not JSON is refused and named", () => {
  it.each([
    ["cut off", '{"externalId":"a"'],
    ["without a value", '{"externalId":}'],
    ["plain words", "externalId=a"],
    ["single quotes", "{'externalId':'a'}"],
    ["a comma too many", '{"externalId":"a",}'],
    ["more after the end", '{"externalId":"a"} {"externalId":"b"}'],
    ["a raw line break in a string", '{"externalId":"a\nb"}'],
    ["a NUL byte", "\0"],
    ["only white space", "  \n "],
    ["not a number", '{"meta":{"a":NaN}}'],
    ["undefined", "undefined"],
  ])("%s", async (_what, text) => {
    expect(expectInvalid(await postText(origin, path, key, text))).toEqual(["body"]);
  });

  it("bytes that are not UTF-8", async () => {
    const body = Buffer.concat([Buffer.from('{"externalId":"'), Buffer.from([0xc3, 0x28]), Buffer.from('"}')]);
    expect(expectInvalid(await postText(origin, path, key, body))).toEqual(["body"]);
  });

  it.each([
    ["a value without quotes", '{"key":lk_topsecret_topsecret_topsecret,"externalId":"abcdefghijklmnopqrstuvwxyz"}'],
    ["a short value without quotes", '{"key":topsecret}'],
    ["a long word", `topsecret${"!".repeat(50)}`],
    ["a long text before the mistake", `{"externalId":"${"topsecret ".repeat(20)}",topsecret}`],
    ["a word that only looks like JSON", "topsecret"],
  ])("without quoting from it, because it may hold a secret: %s", async (_what, text) => {
    const { detail, errors } = expectFailure(await postText(origin, path, key, text), 400, "application/invalid_input");
    expect(`${detail} ${JSON.stringify(errors)}`).not.toMatch(/opsecre/);
  });
});

describe("a body that is JSON but no object is refused and named", () => {
  it.each(["[]", '[{"externalId":"a"}]', '"text"', "42", "null", "true"])("%s", async (text) => {
    expect(expectInvalid(await postText(origin, path, key, text))).toEqual(["body"]);
  });

  it("10,000 levels of arrays", async () => {
    const text = "[".repeat(10_000) + "]".repeat(10_000);
    expect(expectInvalid(await postText(origin, path, key, text))).toEqual(["body"]);
  });
});

describe("a body is as large as a valid one can be", () => {
  it.each([
    ["HTTP/JSON", "/v2/keys.createKey"],
    ["Connect", "/latchkey.v1.KeysService/CreateKey"],
  ])("16 KiB of meta, each character of it escaped, beside 100 long permissions (%s)", async (_protocol, createKey) => {
    const app = await openTestApp();
    onTestFinished(() => app.close());
    const { key } = await createWorkspace(app.httpUrl);
    const text = "x".repeat(16 * 1024 - '{"text":""}'.length);
    const permissions = Array.from({ length: 100 }, (_, index) => `p${index}.`.padEnd(100, "x"));
    const name = "🗝".repeat(255);
    const escaped = (plain: string) => plain.replaceAll("x", "\\u0078");
    const meta = `{"\\u0074\\u0065\\u0078\\u0074":"${escaped(text)}"}`;
    const body = `{"name":"${name}","permissions":${JSON.stringify(permissions)},"meta":${meta}}`;
    expect((await postText(app.httpUrl, createKey, key, body)).status).toBe(200);
    const [, made] = expectSuccess(await post(app.httpUrl, "/v1/keys.listKeys", key, {})) as { meta?: unknown }[];
    expect(made?.meta).toEqual({ text });
  });
});

describe("a body with bad fields is refused with every field named", () => {
  it("an unknown field", async () => {
    expect(expectInvalid(await post(origin, path, key, { externalId: "a", surprise: 1 }))).toEqual(["surprise"]);
  });

  it("a field in the proto's spelling", async () => {
    expect(expectInvalid(await post(origin, path, key, { external_id: "a" }))).toContain("external_id");
  });

  it.each(["__proto__", "constructor", "toString", "hasOwnProperty", "$typeName"])("a field named %j", async (name) => {
    const answer = await postText(origin, path, key, `{"externalId":"a",${JSON.stringify(name)}:{"polluted":true}}`);
    const { errors } = expectFailure(answer, 400, "application/invalid_input");
    expect(errors.map(({ location }) => location)).toEqual([name]);
    expect(Object.hasOwn(Object.prototype, "polluted")).toBe(false);
  });

  it("all wrong types at once", async () => {
    const wrong = { name: 1, prefix: true, externalId: {}, permissions: "*", meta: [], expires: "soon", enabled: 1 };
    expect(expectInvalid(await post(origin, "/v2/keys.createKey", key, wrong))).toEqual(Object.keys(wrong).sort());
  });

  it("wrong types and unknown fields together", async () => {
    const answer = await post(origin, path, key, { externalId: 1, meta: "text", surprise: null });
    expect(expectInvalid(answer)).toEqual(["externalId", "meta", "surprise"]);
  });

  it("single items of an array", async () => {
    const answer = await post(origin, "/v2/keys.createKey", key, { permissions: ["keys.read", 1, null] });
    expect(expectInvalid(answer)).toEqual(["permissions[1]", "permissions[2]"]);
  });

  it.each([[0], [101], [1.5], [2 ** 31], [1e300], ["10"], [true], [[]], [{}]])("the limit %j", async (limit) => {
    expect(expectInvalid(await post(origin, "/v1/keys.listKeys", key, { limit }))).toEqual(["limit"]);
  });

  it.each([1.5, 1e300, 2 ** 53, Number.MAX_SAFE_INTEGER, -1, 0])("the expiry %j", async (expires) => {
    expect(expectInvalid(await post(origin, "/v2/keys.createKey", key, { expires }))).toEqual(["expires"]);
  });

  it("10,000 levels of meta", async () => {
    const nested = '{"a":'.repeat(10_000) + 1 + "}".repeat(10_000);
    expect(expectInvalid(await postText(origin, path, key, `{"externalId":"a","meta":${nested}}`))).toEqual(["meta"]);
  });

  it("10,000 levels where text is wanted", async () => {
    const nested = "[".repeat(10_000) + "]".repeat(10_000);
    expect(expectInvalid(await postText(origin, path, key, `{"externalId":${nested}}`))).toEqual(["externalId"]);
  });
});
