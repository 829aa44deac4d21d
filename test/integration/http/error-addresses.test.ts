import { describe, expect, it } from "vitest";
import { expectError, send, sendBytes } from "../../support/clients/http-requests.js";
import { openFileApp } from "../../support/file-service.js";

let busy = false;
const app = await openFileApp({ guard: { accepts: () => !busy } });
const configured = await openFileApp({ docsBaseUrl: "https://docs.example.com" });

describe("the type URL of an error", () => {
  it.each([
    [{ host: "keys.example.com" }, "http://keys.example.com"],
    [{ host: "keys.example.com:8443", "x-forwarded-proto": "https" }, "https://keys.example.com:8443"],
    [{ host: "keys.example.com", "x-forwarded-proto": "https, http" }, "https://keys.example.com"],
    [{ host: "keys.example.com", "x-forwarded-proto": "javascript" }, "http://keys.example.com"],
    [{ host: "10.0.0.7:8080" }, "http://10.0.0.7:8080"],
    [{ host: "[2001:db8::7]:8080" }, "http://[2001:db8::7]:8080"],
  ])("begins with the address that the client has used: %o", async (headers, base) => {
    expectError(await send(app.httpUrl, "/v1/keys.listKeys", { headers }), 401, "authentication/missing", base);
    expectError(await send(app.httpUrl, "/nowhere", { headers }), 404, "application/route_not_found", base);
  });

  it.each([
    "evil.example/path",
    "user@evil.example",
    "evil.example?query",
    "evil.example#fragment",
    'evil.example"}',
    "evil.example\\@keys.example.com",
    "<script>",
    "evil.example:port",
    "evil.example:123456",
    "[::1",
    "a b",
    "",
    `${"a".repeat(254)}`,
  ])("does not repeat the invalid Host %j, and begins with the service's own address", async (host) => {
    const response = await send(app.httpUrl, "/v1/keys.listKeys", { headers: { host } });
    expectError(response, 401, "authentication/missing", app.httpUrl);
    if (host !== "") expect(response.text).not.toContain(JSON.stringify(host).slice(1, -1));
  });

  it("begins with the service's own address if the request has no Host or is not HTTP", async () => {
    const old = await sendBytes(app.httpUrl, "POST /v1/keys.listKeys HTTP/1.0\r\n\r\n");
    expectError(old, 401, "authentication/missing", app.httpUrl);
    const invalid = await sendBytes(app.httpUrl, "nonsense\r\n\r\n");
    expectError(invalid, 400, "application/invalid_input", app.httpUrl);
  });

  it("of a shed call begins with the address of its own client", async () => {
    busy = true;
    try {
      for (const host of ["one.example", "two.example", "two.example", "one.example"]) {
        const response = await send(app.httpUrl, "/v1/keys.listKeys", { headers: { host } });
        expectError(response, 503, "application/service_unavailable", `http://${host}`);
      }
    } finally {
      busy = false;
    }
  });

  it("begins with DOCS_BASE_URL if it is set, whatever the Host", async () => {
    const response = await send(configured.httpUrl, "/v1/keys.listKeys", { headers: { host: "keys.example.com" } });
    expectError(response, 401, "authentication/missing", "https://docs.example.com");
  });
});
