import { readFileSync } from "node:fs";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { catalogue, failureCodes, pathOf, titleOf } from "../../src/errors.js";
import { mintSecret } from "../../src/keys/secret.js";
import { openTestApp, type TestApp } from "../harness.js";
import { type Answer, ask, createWorkspace, expectFailure, post } from "./http.js";

let app: TestApp;
let origin: string;
let key: string;

beforeAll(async () => {
  app = await openTestApp();
  origin = app.httpUrl;
  key = (await createWorkspace(origin)).key;
});
afterAll(() => app.close());

/** Opens a page as a browser would, without a credential. */
function open(url: string): Promise<Answer> {
  const { origin, pathname } = new URL(url);
  return ask(origin, pathname, { method: "GET" });
}

/** What a reader sees of a page. */
function visibleText(html: string): string {
  return html
    .replace(/<style>.*?<\/style>/gs, "")
    .replace(/<[^>]+>/g, "")
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&amp;", "&");
}

function typeOf({ text }: Answer): string {
  return JSON.parse(text).error.type;
}

describe("the type URL of an error opens as a page that explains it", () => {
  const realErrors: [string, () => Promise<Answer>][] = [
    ["authentication/missing", () => post(origin, "/v1/keys.listKeys", undefined, {})],
    ["authentication/malformed", () => post(origin, "/v1/keys.listKeys", "nonsense", {})],
    ["authentication/key_not_found", () => post(origin, "/v1/keys.listKeys", mintSecret().plaintext, {})],
    ["authorization/insufficient_permissions", () => post(origin, "/v2/workspaces.listWorkspaces", key, {})],
    ["data/identity_not_found", () => post(origin, "/v1/identities.getIdentity", key, { identityId: "id_none" })],
    ["application/invalid_input", () => post(origin, "/v1/keys.listKeys", key, { surprise: 1 })],
    ["application/route_not_found", () => post(origin, "/nowhere", key, {})],
    ["application/method_not_allowed", () => ask(origin, "/v1/keys.listKeys", { method: "GET" })],
    ["application/unsupported_media_type", () => ask(origin, "/v1/keys.listKeys", { key, body: "{}" })],
  ];
  it.each(realErrors)("%s, as it was answered", async (path, provoke) => {
    const type = typeOf(await provoke());
    expect(type).toBe(`${origin}/api-reference/errors-v2/service/${path}`);
    const page = await open(type);
    expect(page.status).toBe(200);
    expect(page.headers["content-type"]).toMatch(/^text\/html\b/);
    expect(visibleText(page.text)).toContain(path);
  });

  it.each(failureCodes.map((code) => [pathOf(code), code] as const))("%s, of the catalogue", async (path, code) => {
    const page = await open(`${origin}/api-reference/errors-v2/service/${path}`);
    expect(page.status).toBe(200);
    expect(page.headers["content-type"]).toMatch(/^text\/html\b/);
    expect(page.headers["x-request-id"]).toMatch(/^req_/);
    const text = visibleText(page.text);
    const { status, when, remedy } = catalogue[code];
    for (const part of [path, `${status}`, titleOf(code), when.replaceAll("`", ""), remedy.replaceAll("`", "")]) {
      expect(text).toContain(part);
    }
  });

  it("and every page links to all the others, by links that open", async () => {
    const { text } = await open(`${origin}/api-reference/errors-v2/service/${pathOf(failureCodes[0] ?? 1)}`);
    const links = [...text.matchAll(/href="([^"]+)"/g)].map(([, href = ""]) => new URL(href, origin).href);
    expect(links).toHaveLength(failureCodes.length);
    for (const link of links) expect(await open(link)).toMatchObject({ status: 200 });
  });

  it("and the example on the page is a whole envelope of that error", async () => {
    for (const code of failureCodes) {
      const type = `${origin}/api-reference/errors-v2/service/${pathOf(code)}`;
      const [, example = ""] = /<pre>(.*?)<\/pre>/s.exec((await open(type)).text) ?? [];
      const { error } = JSON.parse(visibleText(example));
      expect(error).toMatchObject({ type, status: catalogue[code].status, title: titleOf(code) });
      expect(Object.hasOwn(error, "errors")).toBe(pathOf(code) === "application/invalid_input");
    }
  });
});

it("a configured documentation address begins every type, and the pages are served here all the same", async () => {
  const elsewhere = "https://docs.example.com/latchkey";
  const documented = await openTestApp({ docsBaseUrl: elsewhere });
  try {
    const answer = await ask(documented.httpUrl, "/nowhere");
    expectFailure(answer, 404, "application/route_not_found", elsewhere);
    const local = typeOf(answer).replace(elsewhere, documented.httpUrl);
    expect(await open(local)).toMatchObject({ status: 200, text: expect.stringContaining(elsewhere) });
  } finally {
    await documented.close();
  }
});

describe("the README's table of errors agrees with the catalogue", () => {
  const readme = () => readFileSync(new URL("../../README.md", import.meta.url), "utf8");
  const row = /^\| *`([a-z]+\/[a-z_]+)` *\| *(\d{3}) *\| *`?([A-Z_]+|–)`? *\|/gm;

  it.each(failureCodes.map((code) => [pathOf(code), code] as const))("%s", (path, code) => {
    const found = [...readme().matchAll(row)].filter(([, name]) => name === path);
    expect(found.map(([, , status, grpc]) => ({ status, grpc }))).toEqual([
      { status: `${catalogue[code].status}`, grpc: grpcName(catalogue[code].grpc) },
    ]);
  });

  it("names no error that is not in the catalogue", () => {
    const known = failureCodes.map(pathOf);
    expect([...readme().matchAll(row)].map(([, name]) => name).filter((name) => !known.includes(name ?? ""))).toEqual(
      [],
    );
  });
});

/** The status as gRPC spells it, such as PERMISSION_DENIED; a dash for what only HTTP knows. */
function grpcName(code: Code | undefined): string {
  if (code === undefined) return "–";
  return Code[code].replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}
