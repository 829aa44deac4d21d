import fastify from "fastify";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { apiReference } from "../../../src/http/pages/openapi.js";
import { ask } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";

let app: TestApp;

beforeAll(async () => {
  app = await openTestApp();
});
afterAll(() => app.close());

const get = (path: string, headers: Record<string, string> = {}) => ask(app.httpUrl, path, { method: "GET", headers });

describe("the reference page", () => {
  it("names nothing but what the service itself serves", async () => {
    const page = await get("/docs");
    expect(page).toMatchObject({ status: 200, headers: { "content-type": "text/html; charset=utf-8" } });
    const named = [...page.text.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, url = ""]) => url);
    const loaded = named.filter((url) => url.startsWith("/docs/"));
    expect(loaded).toHaveLength(4);
    expect(named.filter((url) => !/^[/#]/.test(url))).toEqual([]);
    for (const url of loaded) {
      const type = url.endsWith(".css") ? "text/css; charset=utf-8" : "text/javascript; charset=utf-8";
      expect(await get(url)).toMatchObject({ status: 200, headers: { "content-type": type } });
    }
  });

  it("forbids the browser to load, or to send, anything elsewhere", async () => {
    const { headers } = await get("/docs");
    const policy = String(headers["content-security-policy"]).split("; ");
    expect(policy).toContain("default-src 'self'");
    expect(policy.filter((rule) => /https?:|\*|connect-src|script-src|unsafe-eval/.test(rule))).toEqual([]);
  });
});

describe.each(["/openapi.json", "/docs", "/docs/page.css", "/docs/swagger-ui.js"])("%s", (path) => {
  it("is asked for again only when it has changed", async () => {
    const first = await get(path);
    expect(first.headers).toMatchObject({
      "cache-control": "no-cache",
      "x-request-id": expect.stringMatching(/^req_/),
    });
    const again = await get(path, { "if-none-match": String(first.headers.etag) });
    expect(again).toMatchObject({ status: 304, text: "" });
    expect(await get(path, { "if-none-match": '"another"' })).toMatchObject({ status: 200, text: first.text });
  });

  it("is compressed for those who read that", async () => {
    const plain = await get(path);
    expect(plain.headers["content-encoding"]).toBeUndefined();
    const response = await fetch(app.httpUrl + path, { headers: { "accept-encoding": "gzip" } });
    expect(response.headers.get("content-encoding")).toBe("gzip");
    expect(await response.text()).toBe(plain.text);
  });

  it("takes no other method", async () => {
    expect(await ask(app.httpUrl, path, { method: "POST" })).toMatchObject({ status: 405 });
  });
});

it("is served again after a file could not be read", async () => {
  let readable = false;
  const server = fastify();
  await server.register(
    apiReference(
      () => {
        if (!readable) throw new Error("EMFILE: too many open files");
        return app.httpUrl;
      },
      (_request, reply, body) => void reply.send(body),
    ),
  );
  expect(await server.inject("/openapi.json")).toMatchObject({ statusCode: 500 });
  readable = true;
  expect(await server.inject("/openapi.json")).toMatchObject({ statusCode: 200 });
});
