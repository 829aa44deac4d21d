import { Code, ConnectError } from "@connectrpc/connect";
import { describe, expect, it } from "vitest";
import { toLatchkeyError } from "../../../src/client/protobuf-error.js";
import { type ApiError, grpcStatusOf, invalidInput, rateLimited } from "../../../src/errors.js";
import { detailsOf } from "../../../src/rpc/status.js";
import { authorizationOf, createAuthorize, type Refusal } from "../../../src/verifier/adapters/authorization.js";
import type { RateLimitState, VerifyResult } from "../../../src/verifier/verifier.js";

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

const valid: VerifyResult = { valid: true, code: "VALID", keyId: "key_1", permissions: [], roles: [] };

/** The state of a rate limit with a window of a minute, which ends in this many milliseconds. */
const limit = (name: string, exceeded: boolean, resetMs: number): RateLimitState => ({
  id: `rl_${name}`,
  name,
  limit: 10,
  duration: 60_000,
  autoApply: true,
  exceeded,
  remaining: 0,
  reset: new Date(Date.now() + resetMs),
  perProcess: false,
});

describe("the authorization of a request", () => {
  it("is synchronous if the verification is", () => {
    expect(authorizeWith(valid)).toBe(valid);
    expect(authorizeWith({ valid: false, code: "DISABLED" })).toMatchObject({
      status: 401,
      body: { code: "DISABLED" },
    });
    expect(authorizeWith(Promise.resolve(valid))).toBeInstanceOf(Promise);
  });

  it("fails without a query, undefined or false: a missing entry of a table does not count as any valid key", () => {
    const authorize = createAuthorize({ verifier: { verify: () => valid } });
    for (const none of [null, true, 0, {}, ["documents.read"]]) {
      expect(() => authorize(["Bearer lk_any"], none as unknown as string)).toThrow("must be a query, undefined");
    }
  });

  it("refuses a key with a code that it does not know", () => {
    const later = { valid: false, code: "FROM_A_NEWER_SERVICE" } as unknown as VerifyResult;
    expect(authorizeWith(later)).toMatchObject({ valid: false, status: 401 });
  });

  it.each(["RATE_LIMITED", "USAGE_EXCEEDED"] as const)("of a key with the code %s is refused with 429", (code) => {
    const refusal = authorizeWith({ valid: false, code });
    expect(refusal).toMatchObject({ status: 429, code: Code.ResourceExhausted, headers: {}, body: { code } });
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

  it("says after a rate limit when the exceeded limits end, whatever the clock of the service shows", () => {
    const refuseFor = (...ratelimits: RateLimitState[]) =>
      authorizeWith({ valid: false, code: "RATE_LIMITED", keyId: "key_1", ratelimits });
    const seconds = (outcome: unknown) => Number((outcome as Refusal).headers["retry-after"]);
    const refusal = refuseFor(limit("a", true, 20_000), limit("b", true, 40_000), limit("c", false, 50_000));
    expect(refusal).toMatchObject({ status: 429, code: Code.ResourceExhausted, body: { code: "RATE_LIMITED" } });
    expect((refusal as Refusal).headers).not.toHaveProperty("www-authenticate");
    expect(seconds(refusal)).toBeGreaterThan(30);
    expect(seconds(refusal)).toBeLessThanOrEqual(40);
    expect(seconds(refuseFor(limit("a", true, -3_600_000)))).toBe(1);
    expect(seconds(refuseFor(limit("a", true, 3_600_000)))).toBe(60);
  });

  it("refuses a key without credits with a status that does not ask for another credential", () => {
    const refusal = authorizeWith({ valid: false, code: "USAGE_EXCEEDED", keyId: "key_1", credits: 0 });
    expect(refusal).toMatchObject({ status: 429, code: Code.ResourceExhausted, headers: {} });
    expect(refusal).toMatchObject({ body: { code: "USAGE_EXCEEDED", message: expect.stringContaining("credits") } });
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
