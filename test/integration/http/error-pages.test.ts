import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";
import { catalogue, errorCodes, grpcNameOf, pathOf, reasonOf, titleOf } from "../../../src/errors.js";
import { errorDocs } from "../../../src/http/pages/error-docs.js";
import { mintSecret } from "../../../src/keys/secret.js";
import {
  createWorkspace,
  expectError,
  expectSuccess,
  type HttpResponse,
  post,
  send,
} from "../../support/clients/http-requests.js";
import { openFileService } from "../../support/file-service.js";
import { openTestApp, operatorKey } from "../../support/harness.js";
import { needsCurl } from "../../support/skip.js";
import { blocksOf, errorsPath, open, visibleText } from "./pages.js";

const run = promisify(execFile);
const errorPaths = errorCodes.map((code) => [pathOf(code), code] as const);

const { app, origin, workspaceId, key } = await openFileService();

function typeOf({ text }: HttpResponse): string {
  return JSON.parse(text).error.type;
}

describe("the type URL of an error opens as a page that explains it", () => {
  const realErrors: [string, () => Promise<HttpResponse>][] = [
    ["authentication/missing", () => post(origin, "/v1/keys.listKeys", undefined, {})],
    ["authentication/malformed", () => post(origin, "/v1/keys.listKeys", "nonsense", {})],
    ["authentication/key_not_found", () => post(origin, "/v1/keys.listKeys", mintSecret().plaintext, {})],
    ["authorization/insufficient_permissions", () => post(origin, "/v2/workspaces.listWorkspaces", key, {})],
    ["data/identity_not_found", () => post(origin, "/v1/identities.getIdentity", key, { identityId: "id_none" })],
    ["application/invalid_input", () => post(origin, "/v1/keys.listKeys", key, { surprise: 1 })],
    ["application/route_not_found", () => post(origin, "/nowhere", key, {})],
    ["application/method_not_allowed", () => send(origin, "/v1/keys.listKeys", { method: "GET" })],
    ["application/unsupported_media_type", () => send(origin, "/v1/keys.listKeys", { key, body: "{}" })],
  ];
  it.each(realErrors)("%s, from a real response", async (path, causeError) => {
    const type = typeOf(await causeError());
    expect(type).toBe(`${origin}/api-reference/errors-v2/service/${path}`);
    const page = await open(origin, new URL(type).pathname);
    expect(page.status).toBe(200);
    expect(page.headers["content-type"]).toMatch(/^text\/html\b/);
    expect(visibleText(page.text)).toContain(path);
  });

  it.each(errorPaths)("%s, from the catalogue", async (path, code) => {
    const page = await open(origin, `${errorsPath}/${path}`);
    expect(page.status).toBe(200);
    expect(page.headers["content-type"]).toMatch(/^text\/html\b/);
    expect(page.headers["x-request-id"]).toMatch(/^req_/);
    const text = visibleText(page.text);
    const { when, causes, remedy } = errorDocs[code];
    const facts = [
      path,
      `${catalogue[code].status} ${titleOf(code)}`,
      grpcNameOf(code) ?? "over HTTP only",
      reasonOf(code),
    ];
    for (const part of [...facts, when, ...causes, remedy]) expect(text).toContain(part.replaceAll("`", ""));
  });

  it("and every error page and the list of errors link to all errors", async () => {
    for (const path of [errorsPath, `${errorsPath}/`, ...errorPaths.map(([name]) => `${errorsPath}/${name}`)]) {
      const { text } = await open(origin, path);
      for (const [name] of errorPaths) expect(text).toContain(`href="${errorsPath}/${name}"`);
    }
  });
});

describe("the command on an error page", () => {
  let credentials: Record<string, string>;
  let keyId: string;

  beforeAll(async () => {
    const create = async (settings: object) =>
      expectSuccess(await post(origin, "/v2/keys.createKey", key, settings)) as { key: string; keyId: string };
    const make = async (settings: object) => (await create(settings)).key;
    ({ keyId } = await create({}));
    const other = await createWorkspace(origin);
    const reason = { workspaceId: other.workspaceId, reason: "UNPAID_BILLING" };
    expectSuccess(await post(origin, "/v2/workspaces.disableWorkspace", operatorKey, reason));
    expectSuccess(await post(origin, "/v2/identities.createIdentity", key, { externalId: "user_42" }));
    expectSuccess(await post(origin, "/v2/permissions.createRole", key, { name: "editor" }));
    const permission = { name: "Read documents", slug: "documents.read" };
    expectSuccess(await post(origin, "/v2/permissions.createPermission", key, permission));
    credentials = {
      "authentication/key_expired": await make({ scopes: ["*"], expires: Date.now() + 3_600_000 }),
      "authorization/workspace_disabled": other.key,
      "authorization/key_disabled": await make({ scopes: ["*"], enabled: false }),
      "authorization/insufficient_permissions": await make({ scopes: ["keys.verify"] }),
    };
    await app.advance(3_600_001);
  });

  /** Runs the command of a page in a shell, with the variables that the page describes. */
  async function runCommand(page: string, path: string): Promise<string> {
    const [command = ""] = blocksOf("command", page);
    const env = {
      PATH: process.env["PATH"],
      KEY: credentials[path] ?? key,
      KEY_ID: keyId,
      OPERATOR: operatorKey,
      WORKSPACE_ID: workspaceId,
    };
    return (await run("bash", ["-c", command], { env })).stdout;
  }

  // A client cannot cause these errors on purpose, so their commands recover from them.
  const notReproducible = [
    "limits/rate_limited",
    "limits/quota_exceeded",
    "application/deadline_exceeded",
    "application/service_unavailable",
    "application/unexpected_error",
  ];

  it.for(errorPaths.map(([path]) => path).filter((path) => !notReproducible.includes(path)))(
    "%s: returns the example response that the page shows",
    async (path, context) => {
      needsCurl(context);
      const { text } = await open(origin, `${errorsPath}/${path}`);
      const [example = ""] = blocksOf("json", text);
      const response = JSON.parse(await runCommand(text, path));
      expect(response.error).toMatchObject({ type: `${origin}${errorsPath}/${path}` });
      expect(JSON.parse(example)).toEqual({ ...response, meta: { requestId: expect.stringMatching(/^req_/) } });
    },
  );

  it.for(notReproducible)(
    "%s: succeeds when the service is healthy, and the example is a complete envelope",
    async (path, context) => {
      needsCurl(context);
      const { text } = await open(origin, `${errorsPath}/${path}`);
      const [example = ""] = blocksOf("json", text);
      expect(JSON.parse(example)).toEqual({
        meta: { requestId: expect.stringMatching(/^req_[0-9a-z]{26}$/) },
        error: {
          detail: expect.stringMatching(/\S/),
          status: expect.any(Number),
          title: expect.any(String),
          type: `${origin}${errorsPath}/${path}`,
        },
      });
      expect(await runCommand(text, path)).toMatch(/"data":/);
    },
  );
});

it("DOCS_BASE_URL begins every error type, and the service still serves the pages itself", async () => {
  const docsBaseUrl = "https://docs.example.com/latchkey";
  const configured = await openTestApp({ docsBaseUrl: docsBaseUrl });
  try {
    const response = await send(configured.httpUrl, "/nowhere");
    expectError(response, 404, "application/route_not_found", docsBaseUrl);
    const local = typeOf(response).replace(docsBaseUrl, configured.httpUrl);
    expect(await open(configured.httpUrl, new URL(local).pathname)).toMatchObject({
      status: 200,
      text: expect.stringContaining(docsBaseUrl),
    });
  } finally {
    await configured.close();
  }
});

describe("the documented table of errors agrees with the catalogue", () => {
  const document = () => readFileSync(new URL("../../../docs/reference/errors.md", import.meta.url), "utf8");
  const row = /^\| *`([a-z]+\/[a-z_]+)` *\| *(\d{3}) *\| *`?([A-Z_]+|–)`? *\|/gm;

  it.each(errorPaths)("%s", (path, code) => {
    const found = [...document().matchAll(row)].filter(([, name]) => name === path);
    expect(found.map(([, , status, grpc]) => ({ status, grpc }))).toEqual([
      { status: `${catalogue[code].status}`, grpc: grpcNameOf(code) ?? "–" },
    ]);
  });

  it("names no error that is not in the catalogue", () => {
    const known = errorCodes.map(pathOf);
    expect([...document().matchAll(row)].map(([, name]) => name).filter((name) => !known.includes(name ?? ""))).toEqual(
      [],
    );
  });
});
