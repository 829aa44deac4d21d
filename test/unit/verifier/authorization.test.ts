import { Code, ConnectError } from "@connectrpc/connect";
import { describe, expect, it } from "vitest";
import { toLatchkeyError } from "../../../src/client/error.js";
import { type ApiError, grpcStatusOf, invalidInput, rateLimited } from "../../../src/errors.js";
import { detailsOf } from "../../../src/rpc/status.js";
import { authorizationOf, createAuthorize } from "../../../src/verifier/adapters/authorization.js";
import type { VerifyResult } from "../../../src/verifier/verifier.js";

/** An error of the service, as a client receives it. */
function received(error: ApiError) {
  const details = detailsOf(error, "req_1");
  return toLatchkeyError(new ConnectError(error.detail, grpcStatusOf(error.code), undefined, details));
}

/** Authorizes a request with a verifier that returns this. */
function authorizeWith(result: VerifyResult | Promise<VerifyResult>, errors: unknown[] = [], realm = "api") {
  const authorize = createAuthorize({ verifier: { verify: () => result }, realm, onError: (e) => errors.push(e) });
  return authorize(["Bearer lk_any"], "documents.read");
}

const valid: VerifyResult = { valid: true, code: "VALID", keyId: "key_1", permissions: [] };

describe("the authorization of a request", () => {
  it("is synchronous if the verification is", () => {
    expect(authorizeWith(valid)).toBe(valid);
    expect(authorizeWith({ valid: false, code: "DISABLED" })).toMatchObject({
      status: 401,
      body: { code: "DISABLED" },
    });
    expect(authorizeWith(Promise.resolve(valid))).toBeInstanceOf(Promise);
  });

  it("refuses a key with a code that it does not know", () => {
    const later = { valid: false, code: "FROM_A_NEWER_SERVICE" } as unknown as VerifyResult;
    expect(authorizeWith(later)).toMatchObject({ valid: false, status: 401 });
  });

  it("never succeeds because something failed", async () => {
    const errors: unknown[] = [];
    const failures = [
      new ConnectError("gone", Code.Unavailable),
      new TypeError("a mistake"),
      undefined,
      { valid: true },
    ];
    for (const failure of failures) {
      const outcome = await authorizeWith(Promise.reject(failure), errors);
      expect(outcome).toMatchObject({ valid: false, status: 503, code: Code.Unavailable });
      expect(outcome).toMatchObject({ headers: { "retry-after": "1" }, body: { code: "UNAVAILABLE" } });
    }
    expect(errors).toEqual(failures);
  });

  it("names the time after which the service accepts requests again", async () => {
    const limited = received(rateLimited(10, 60, 6_001));
    expect(await authorizeWith(Promise.reject(limited))).toMatchObject({ headers: { "retry-after": "7" } });
  });

  it("fails if the service finds the query invalid, because a retry would not help", async () => {
    const mistake = received(invalidInput([{ location: "permissions", message: "is bad" }]));
    await expect(authorizeWith(Promise.reject(mistake))).rejects.toBe(mistake);
  });

  it("quotes its realm, and refuses one that a header cannot contain", () => {
    const refusal = authorizeWith({ valid: false, code: "EXPIRED" }, [], 'a "b" \\');
    expect(refusal).toMatchObject({
      headers: { "www-authenticate": 'Bearer realm="a \\"b\\" \\\\", error="invalid_token"' },
    });
    expect(() => authorizeWith(valid, [], "a\r\nb")).toThrow("printable ASCII");
  });
});

describe("the Authorization headers of a Node request", () => {
  it("are all of them, whatever their case", () => {
    const rawHeaders = [
      "Host",
      "authorization",
      "AUTHORIZATION",
      "one",
      "X-Authorization",
      "no",
      "authorization",
      "two",
    ];
    expect(authorizationOf(rawHeaders)).toEqual(["one", "two"]);
  });
});
