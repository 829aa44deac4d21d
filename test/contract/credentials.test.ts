import { request as httpRequest } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openHttpClient } from "../support/clients/http.js";
import { openTestApp, operatorKey, type TestApp } from "../support/harness.js";
import { type OperationName, operationOf } from "../support/operations.js";
import { allProtocols, openContract } from "./cases.js";
import type { Scene } from "./scene.js";

const contract = openContract(allProtocols);
const { everyProtocol } = contract;

/** Another installation. Its keys are well-formed, but unknown here. */
let elsewhere: TestApp;
let foreignKey = "";
beforeAll(async () => {
  elsewhere = await openTestApp();
  const outcome = await openHttpClient(elsewhere.httpUrl).call("createWorkspace", operatorKey, { name: "elsewhere" });
  if (outcome.ok) foreignKey = (outcome.data as { key: string }).key;
});
afterAll(() => elsewhere.close());

const missing = "authentication/missing";
const malformed = "authentication/malformed";
const unknown = "authentication/key_not_found";

/** Invalid credentials: Authorization header values made from a valid key, and the expected error code. */
const badCredentials: Record<string, { code: string; authorization(key: string): readonly string[] }> = {
  "no Authorization header": { code: missing, authorization: () => [] },
  "the bare key without a scheme": { code: malformed, authorization: (key) => [key] },
  "the scheme Basic": { code: malformed, authorization: (key) => [`Basic ${btoa(`${key}:`)}`] },
  "the scheme Token": { code: malformed, authorization: (key) => [`Token ${key}`] },
  "the scheme alone": { code: malformed, authorization: () => ["Bearer"] },
  "no space after the scheme": { code: malformed, authorization: (key) => [`Bearer${key}`] },
  "something after the key": { code: malformed, authorization: (key) => [`Bearer ${key} more`] },
  "the key in quotes": { code: malformed, authorization: (key) => [`Bearer "${key}"`] },
  "a word that is not a key": { code: malformed, authorization: () => ["Bearer hello"] },
  "a key with its last letter changed": { code: malformed, authorization: (key) => [`Bearer ${changed(key, -1)}`] },
  "a key with a letter in the middle changed": {
    code: malformed,
    authorization: (key) => [`Bearer ${changed(key, 9)}`],
  },
  "a key with another prefix": { code: malformed, authorization: (key) => [`Bearer x${key}`] },
  "a truncated key": { code: malformed, authorization: (key) => [`Bearer ${key.slice(0, -1)}`] },
  "a key in capitals": { code: malformed, authorization: (key) => [`Bearer ${key.toUpperCase()}`] },
  "a very long text": { code: malformed, authorization: () => [`Bearer ${"a".repeat(4000)}`] },
  "two good keys in one header": { code: malformed, authorization: (key) => [`Bearer ${key}, Bearer ${key}`] },
  "a well-formed key that was not issued here": { code: unknown, authorization: () => [`Bearer ${foreignKey}`] },
  "almost the operator's credential": { code: malformed, authorization: () => [`Bearer ${operatorKey}x`] },
};

/** The text with another letter or digit at the index. */
function changed(text: string, index: number): string {
  const at = index < 0 ? text.length + index : index;
  return text.slice(0, at) + (text[at] === "A" ? "B" : "A") + text.slice(at + 1);
}

describe("authentication: invalid credentials", () => {
  for (const [what, { code, authorization }] of Object.entries(badCredentials)) {
    everyProtocol(`${what} is refused with ${code}, for every operation and body`, async (scene) => {
      for (const operation of ["listKeys", "createIdentity", "createWorkspace"] as const) {
        await refusedWhateverTheBody(scene, code, operation, authorization(scene.home.key));
      }
    });
  }

  test.each(["/v1/keys.listKeys", "/latchkey.v1.KeysService/ListKeys"])(
    "two separate Authorization header lines are refused at %s, although each is valid",
    async (path) => {
      const created = await contract.protocols.http.call("createWorkspace", operatorKey, { name: "acme" });
      if (!created.ok) return expect.fail(created.detail);
      const { key } = created.data as { key: string };
      const response = await post(`${contract.app.httpUrl}${path}`, [`Bearer ${key}`, `Bearer ${key}`]);
      expect(response.status).toBe(401);
      expect(response.body).toMatch(/more than one Authorization header/);
      const single = await post(`${contract.app.httpUrl}${path}`, [`Bearer ${key}`]);
      expect(single.status).toBe(200);
    },
  );
});

async function refusedWhateverTheBody(
  scene: Scene,
  code: string,
  operation: OperationName,
  authorization: readonly string[],
): Promise<void> {
  const { wellFormed, malformed } = operationOf(operation);
  for (const request of [wellFormed, malformed]) {
    const { fields } = await scene.refused(code, operation, authorization, request);
    expect(fields).toBeUndefined();
  }
}

/** node:http, because fetch would join the two headers into one. */
function post(url: string, authorization: readonly string[]): Promise<{ status: number | undefined; body: string }> {
  return new Promise((resolve, reject) => {
    const headers = { Authorization: [...authorization], "Content-Type": "application/json", Connection: "close" };
    const request = httpRequest(url, { method: "POST", headers }, async (response) => {
      resolve({ status: response.statusCode, body: (await response.setEncoding("utf8").toArray()).join("") });
    });
    request.on("error", reject);
    request.end("{}");
  });
}
