import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { promisify } from "node:util";
import { HtmlValidate } from "html-validate";
import { describe, expect, it } from "vitest";
import { createWorkspace, expectError, expectSuccess, send, sendBytes } from "../../support/clients/http-requests.js";
import { openFileApp } from "../../support/file-service.js";
import { needsCurl } from "../../support/skip.js";
import { blocksOf, errorsPath, open, pagePaths, visibleText } from "./pages.js";

const run = promisify(execFile);
const { version } = JSON.parse(readFileSync("package.json", "utf8"));

const app = await openFileApp();
const origin = app.httpUrl;

describe("the home page", () => {
  it("shows a browser the running version and the addresses of the protocols", async () => {
    const { headers, text } = await open(origin, "/");
    expect(headers["content-type"]).toBe("text/html; charset=utf-8");
    for (const part of [`Running Latchkey ${version}`, origin, app.grpcAddress]) {
      expect(visibleText(text)).toContain(part);
    }
    expect(blocksOf("command", text).join("\n")).toContain(`curl -X POST ${origin}/v1/keys.listKeys`);
  });

  it.each([undefined, "*/*", "application/json", "text/html;q=0.5, application/json", "image/png"])(
    "returns the same as JSON to a client that accepts %s",
    async (accept) => {
      const response = await send(origin, "/", { method: "GET", headers: accept ? { accept } : {} });
      expect(response.headers["vary"]).toBe("accept");
      expect(expectSuccess(response)).toEqual({
        name: "Latchkey",
        version,
        protocols: { http: origin, connect: origin, grpc: app.grpcAddress },
        links: {
          reference: `${origin}/docs`,
          openapi: `${origin}/openapi.json`,
          errors: origin + errorsPath,
          live: `${origin}/livez`,
          ready: `${origin}/readyz`,
        },
      });
    },
  );

  it("shows addresses with the requested Host, and https behind a proxy that terminates TLS", async () => {
    const { port } = new URL(`http://${app.grpcAddress}`);
    const protocolsFor = async (headers: Record<string, string>) =>
      (expectSuccess(await send(origin, "/", { method: "GET", headers })) as { protocols: unknown }).protocols;
    const plain = "http://keys.example.com:81";
    expect(await protocolsFor({ host: "keys.example.com:81" })).toEqual({
      http: plain,
      connect: plain,
      grpc: `keys.example.com:${port}`,
    });
    expect(await protocolsFor({ host: "[::1]", "x-forwarded-proto": "https" })).toEqual({
      http: "https://[::1]",
      connect: "https://[::1]",
      grpc: `[::1]:${port}`,
    });
  });

  it.each(["x'$(id)", "a b", "<script>", "a`id`", "a/../b"])(
    "does not repeat the invalid Host %j, which a shell might run",
    async (host) => {
      const { text } = await send(origin, "/", { method: "GET", headers: { host, accept: "text/html" } });
      expect(text).not.toContain(host);
      expect(visibleText(text)).toContain(`http://localhost:${new URL(origin).port}`);
    },
  );

  it("shows one working command for each protocol", async (context) => {
    needsCurl(context);
    const { key } = await createWorkspace(origin);
    const [, ...commands] = blocksOf("command", (await open(origin, "/")).text);
    expect(commands).toHaveLength(3);
    const env = { PATH: process.env["PATH"], HOME: tmpdir(), KEY: key };
    const results = await Promise.all(commands.map((command) => run("bash", ["-c", command], { env })));
    for (const { stdout } of results) expect(stdout).toMatch(/"name": ?"first key"/);
  });

  it("is served to HTTP/1.0 clients without a Host header", async () => {
    const response = await sendBytes(origin, "GET / HTTP/1.0\r\n\r\n");
    expect(response.status).toBe(200);
  });

  it("accepts only GET and HEAD", async () => {
    expect(await send(origin, "/", { method: "HEAD" })).toMatchObject({ status: 200, text: "" });
    const refused = await send(origin, "/", { method: "POST" });
    expectError(refused, 405, "application/method_not_allowed");
    expect(refused.headers["allow"]).toBe("GET, HEAD");
  });
});

describe("every page", () => {
  it("is valid and accessible HTML by the rules of html-validate", async () => {
    const validate = new HtmlValidate({
      extends: ["html-validate:standard", "html-validate:a11y"],
      // A lower-case doctype and void elements without a slash are this project's style.
      rules: { "doctype-style": ["error", { style: "lowercase" }], "no-trailing-whitespace": "off" },
    });
    for (const path of [...pagePaths, "/nothing"]) {
      const { results } = await validate.validateString((await open(origin, path)).text);
      expect(
        results.flatMap(({ messages }) => messages.map(({ line, message }) => `${path}:${line} ${message}`)),
      ).toEqual([]);
    }
  });

  it("has a content security policy without scripts and other origins, with its style allowed by hash", async () => {
    for (const path of pagePaths) {
      const { status, headers, text } = await open(origin, path);
      expect(status).toBe(200);
      const [, style = ""] = /<style>(.*?)<\/style>/s.exec(text) ?? [];
      const hash = createHash("sha256").update(style).digest("base64");
      expect(`${headers["content-security-policy"]}`.split("; ")).toEqual([
        "default-src 'none'",
        `style-src 'sha256-${hash}'`,
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
      ]);
      expect(headers).toMatchObject({ "x-content-type-options": "nosniff", "referrer-policy": "no-referrer" });
      expect(text).not.toMatch(/<script|\sstyle=|\son[a-z]+=/i);
    }
  });

  it("has no broken links and no broken fragments", async () => {
    const links = new Set<string>();
    for (const path of pagePaths) {
      for (const [, href = ""] of (await open(origin, path)).text.matchAll(/href="([^"]+)"/g)) {
        links.add(new URL(href, origin + path).href);
      }
    }
    expect(links.size).toBeGreaterThan(pagePaths.length);
    for (const link of links) {
      const { pathname, hash } = new URL(link);
      expect(link.startsWith(origin)).toBe(true);
      const { status, text } = await open(origin, pathname);
      expect(`${status} ${link}`).toBe(`200 ${link}`);
      if (hash) expect(text, link).toContain(`id="${hash.slice(1)}"`);
    }
  });
});

describe("an unknown path", () => {
  const path = "/v2/keys.<script>alert(1)</script>?q=%22onload";

  it("is a page for a browser, under the same policy, and does not repeat the path", async () => {
    const { status, headers, text } = await open(origin, path);
    const home = await open(origin, "/");
    expect(status).toBe(404);
    expect(headers).toMatchObject({
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": home.headers["content-security-policy"],
      "cache-control": "no-store",
      vary: "accept",
      "x-request-id": expect.stringMatching(/^req_/),
    });
    expect(text).not.toMatch(/script|onload|alert/);
    expect(visibleText(text)).toContain("There is no page at this address.");
    for (const [, link = ""] of text.matchAll(/<li><a href="([^"]+)"/g)) {
      expect(await open(origin, link)).toMatchObject({ status: 200 });
    }
  });

  it("has the same headers and no body for HEAD", async () => {
    const headers = { accept: "text/html" };
    const head = await send(origin, path, { method: "HEAD", headers });
    const { text } = await open(origin, path);
    expect(head).toMatchObject({ status: 404, text: "" });
    expect(head.headers).toMatchObject({
      "content-type": "text/html; charset=utf-8",
      "content-length": String(Buffer.byteLength(text)),
    });
  });

  it.each([
    ["GET", undefined],
    ["GET", "*/*"],
    ["GET", "application/json"],
    ["GET", "application/json, text/html;q=0.9"],
    ["POST", "text/html"],
    ["DELETE", "text/html"],
  ])("is the envelope for %s with Accept: %s", async (method, accept) => {
    const response = await send(origin, path, { method, headers: accept ? { accept } : {} });
    expectError(response, 404, "application/route_not_found");
    expect(response.headers["content-type"]).toBe("application/problem+json; charset=utf-8");
    expect(response.headers["content-security-policy"]).toBeUndefined();
  });

  it("other errors stay JSON, for browsers, too", async () => {
    expectError(await open(origin, "/v2/keys.listKeys"), 405, "application/method_not_allowed");
  });
});
