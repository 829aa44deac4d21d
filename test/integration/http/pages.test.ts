import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { promisify } from "node:util";
import { HtmlValidate } from "html-validate";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ask, createWorkspace, expectFailure, expectSuccess, sendBytes } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { needsCurl } from "../../support/skip.js";
import { blocksOf, errorsPath, open, pagePaths, visibleText } from "./pages.js";

const run = promisify(execFile);
const { version } = JSON.parse(readFileSync("package.json", "utf8"));

let app: TestApp;
let origin: string;

beforeAll(async () => {
  app = await openTestApp();
  origin = app.httpUrl;
});
afterAll(() => app.close());

describe("the first page", () => {
  it("says to a browser which version runs, and where its protocols are", async () => {
    const { headers, text } = await open(origin, "/");
    expect(headers["content-type"]).toBe("text/html; charset=utf-8");
    for (const fact of [`Running Latchkey ${version}`, origin, app.grpcAddress]) {
      expect(visibleText(text)).toContain(fact);
    }
    expect(blocksOf("command", text).join("\n")).toContain(`curl -X POST ${origin}/v1/keys.listKeys`);
  });

  it.each([undefined, "*/*", "application/json", "text/html;q=0.5, application/json", "image/png"])(
    "says the same in JSON to a client that accepts %s",
    async (accept) => {
      const answer = await ask(origin, "/", { method: "GET", headers: accept ? { accept } : {} });
      expect(answer.headers["vary"]).toBe("accept");
      expect(expectSuccess(answer)).toEqual({
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

  it("tells the protocols by the name that the asker uses, and https where a proxy ends it", async () => {
    const { port } = new URL(`http://${app.grpcAddress}`);
    const clientsFor = async (headers: Record<string, string>) =>
      (expectSuccess(await ask(origin, "/", { method: "GET", headers })) as { protocols: unknown }).protocols;
    const plain = "http://keys.example.com:81";
    expect(await clientsFor({ host: "keys.example.com:81" })).toEqual({
      http: plain,
      connect: plain,
      grpc: `keys.example.com:${port}`,
    });
    expect(await clientsFor({ host: "[::1]", "x-forwarded-proto": "https" })).toEqual({
      http: "https://[::1]",
      connect: "https://[::1]",
      grpc: `[::1]:${port}`,
    });
  });

  it.each(["x'$(id)", "a b", "<script>", "a`id`", "a/../b"])(
    "repeats nothing of the host %j, which no host is called and a shell might run",
    async (host) => {
      const { text } = await ask(origin, "/", { method: "GET", headers: { host, accept: "text/html" } });
      expect(text).not.toContain(host);
      expect(visibleText(text)).toContain(`http://localhost:${new URL(origin).port}`);
    },
  );

  it("shows commands that work as they are pasted, one for each protocol", async (context) => {
    needsCurl(context);
    const { key } = await createWorkspace(origin);
    const [, ...commands] = blocksOf("command", (await open(origin, "/")).text);
    expect(commands).toHaveLength(3);
    const env = { PATH: process.env["PATH"], HOME: tmpdir(), KEY: key };
    const answers = await Promise.all(commands.map((command) => run("bash", ["-c", command], { env })));
    for (const { stdout } of answers) expect(stdout).toMatch(/"name": ?"first key"/);
  });

  it("is served without a Host, to HTTP/1.0", async () => {
    const answer = await sendBytes(origin, "GET / HTTP/1.0\r\n\r\n");
    expect(answer.status).toBe(200);
  });

  it("takes GET and HEAD alone", async () => {
    expect(await ask(origin, "/", { method: "HEAD" })).toMatchObject({ status: 200, text: "" });
    const refused = await ask(origin, "/", { method: "POST" });
    expectFailure(refused, 405, "application/method_not_allowed");
    expect(refused.headers["allow"]).toBe("GET, HEAD");
  });
});

describe("every page", () => {
  it("is well-formed and accessible by the rules of html-validate", async () => {
    const validate = new HtmlValidate({
      extends: ["html-validate:standard", "html-validate:a11y"],
      // The doctype in small letters and void elements without a slash are a matter of taste, and this is ours.
      rules: { "doctype-style": ["error", { style: "lowercase" }], "no-trailing-whitespace": "off" },
    });
    for (const path of pagePaths) {
      const { results } = await validate.validateString((await open(origin, path)).text);
      expect(
        results.flatMap(({ messages }) => messages.map(({ line, message }) => `${path}:${line} ${message}`)),
      ).toEqual([]);
    }
  });

  it("runs nothing, loads nothing from elsewhere, and allows its own style by its hash alone", async () => {
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

  it("links only to what opens, and to parts that are there", async () => {
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
