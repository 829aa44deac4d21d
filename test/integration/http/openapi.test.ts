import fastify from "fastify";
import { describe, expect, it } from "vitest";
import { apiReference } from "../../../src/http/pages/openapi.js";
import { send } from "../../support/clients/http-requests.js";
import { openFileApp } from "../../support/file-service.js";

const app = await openFileApp();

const get = (path: string, headers: Record<string, string> = {}) => send(app.httpUrl, path, { method: "GET", headers });

describe("the reference page", () => {
  it("links and loads only URLs of the service itself", async () => {
    const page = await get("/docs");
    expect(page).toMatchObject({ status: 200, headers: { "content-type": "text/html; charset=utf-8" } });
    const urls = [...page.text.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, url = ""]) => url);
    const loaded = urls.filter((url) => url.startsWith("/docs/"));
    expect(loaded).toHaveLength(4);
    expect(urls.filter((url) => !/^[/#]/.test(url))).toEqual([]);
    for (const url of loaded) {
      const type = url.endsWith(".css") ? "text/css; charset=utf-8" : "text/javascript; charset=utf-8";
      expect(await get(url)).toMatchObject({ status: 200, headers: { "content-type": type } });
    }
  });

  it("is the same with a slash at the end", async () => {
    const [page, withSlash] = await Promise.all([get("/docs"), get("/docs/")]);
    expect(withSlash).toMatchObject({ status: 200, text: page.text });
    expect(withSlash.headers["content-security-policy"]).toBe(page.headers["content-security-policy"]);
  });

  it("shows keys first", async () => {
    const { tags } = JSON.parse((await get("/openapi.json")).text);
    expect(tags[0].name).toBe("Keys");
  });

  it("has a content security policy that allows only this service", async () => {
    const { headers } = await get("/docs");
    const policy = String(headers["content-security-policy"]).split("; ");
    expect(policy).toContain("default-src 'self'");
    expect(policy.filter((rule) => /https?:|\*|connect-src|script-src|unsafe-eval/.test(rule))).toEqual([]);
  });
});

describe.each(["/openapi.json", "/docs", "/docs/page.css", "/docs/swagger-ui.js"])("%s", (path) => {
  it("is revalidated with its ETag, and sent again only if it changed", async () => {
    const first = await get(path);
    expect(first.headers).toMatchObject({
      "cache-control": "no-cache",
      "x-request-id": expect.stringMatching(/^req_/),
    });
    const again = await get(path, { "if-none-match": String(first.headers.etag) });
    expect(again).toMatchObject({ status: 304, text: "" });
    expect(await get(path, { "if-none-match": '"another"' })).toMatchObject({ status: 200, text: first.text });
  });

  it("is compressed for clients that accept gzip", async () => {
    const plain = await get(path);
    expect(plain.headers["content-encoding"]).toBeUndefined();
    const response = await fetch(app.httpUrl + path, { headers: { "accept-encoding": "gzip" } });
    expect(response.headers.get("content-encoding")).toBe("gzip");
    expect(await response.text()).toBe(plain.text);
  });

  it("refuses other methods", async () => {
    expect(await send(app.httpUrl, path, { method: "POST" })).toMatchObject({ status: 405 });
  });
});

it("the OpenAPI document is served again after a read error, which is not cached", async () => {
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
