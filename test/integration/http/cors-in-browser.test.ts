import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { executable, noBrowser, openBrowser } from "../../support/browser.js";
import { createWorkspace, expectSuccess, post } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { skipTest } from "../../support/skip.js";

interface Services {
  /** Allows the pages of one origin. */
  readonly app: TestApp;
  readonly allowedOrigin: string;
  /** The same pages, by another name of the host. */
  readonly otherOrigin: string;
  /** Has no CORS_ORIGINS. */
  readonly closed: TestApp;
}

let services: Services | undefined;
let pages: Server | undefined;
let browser: Browser | undefined;
let page: Page;

beforeAll(async () => {
  if (!executable) return;
  pages = createServer((_request, response) => response.setHeader("content-type", "text/html").end("<!doctype html>"));
  await new Promise<void>((resolve) => pages?.listen(0, "127.0.0.1", resolve));
  const { port } = pages.address() as AddressInfo;
  const allowedOrigin = `http://127.0.0.1:${port}`;
  services = {
    app: await openTestApp({ corsOrigins: [allowedOrigin], rateLimit: { requests: 3, windowSeconds: 600 } }),
    allowedOrigin,
    otherOrigin: `http://localhost:${port}`,
    closed: await openTestApp(),
  };
  browser = await openBrowser();
  page = await browser.newPage();
});
afterAll(async () => {
  await browser?.close();
  await services?.app.close();
  await services?.closed.close();
  pages?.close();
});

/** A test in a browser; skipped without one. */
function inBrowser(name: string, test: (services: Services) => Promise<void>): void {
  it(name, async (context) => {
    if (services === undefined) return skipTest(context, noBrowser);
    await test(services);
  });
}

interface BrowserResponse {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: unknown;
}

/** Sends a call by a script of the open page. Returns what the script can read, or its error. */
function fetchInPage(url: string, headers: Record<string, string>): Promise<BrowserResponse | string> {
  const init = { method: "POST", headers: { "content-type": "application/json", ...headers }, body: "{}" };
  return page.evaluate(`fetch(${JSON.stringify(url)}, ${JSON.stringify(init)}).then(
    async (response) => ({
      status: response.status,
      headers: Object.fromEntries(response.headers),
      body: await response.json(),
    }),
    String,
  )`);
}

inBrowser(
  "a page of an allowed origin can call over HTTP/JSON and Connect, and reads when to retry and how much is left",
  async ({ app, allowedOrigin }) => {
    const { key } = await createWorkspace(app.httpUrl);
    await page.goto(allowedOrigin);
    const authorization = `Bearer ${key}`;
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    const created = await fetchInPage(`${app.httpUrl}/v2/keys.createKey`, {
      authorization,
      "idempotency-key": "from a browser",
      traceparent,
    });
    expect(created).toMatchObject({
      status: 200,
      headers: {
        "x-request-id": expect.stringMatching(/^req_/),
        "ratelimit-policy": '"workspace";q=3;w=600',
        ratelimit: expect.stringMatching(/^"workspace";r=\d+;t=\d+$/),
      },
      body: { data: { keyId: expect.any(String) } },
    });

    const overConnect = `${app.httpUrl}/latchkey.v1.KeysService/ListKeys`;
    const connectHeaders = { authorization, "connect-protocol-version": "1", "connect-timeout-ms": "20000" };
    expect(await fetchInPage(overConnect, connectHeaders)).toMatchObject({
      status: 200,
      headers: { "x-request-id": expect.stringMatching(/^req_/), ratelimit: expect.any(String) },
      body: { keys: expect.any(Array) },
    });

    const list = () => fetchInPage(`${app.httpUrl}/v2/keys.listKeys`, { authorization });
    // Not simply after the third call: while Redis is not yet in use, calls are counted in memory.
    await expect.poll(list, { timeout: 10_000 }).toMatchObject({
      status: 429,
      headers: { "retry-after": expect.stringMatching(/^\d+$/), "x-request-id": expect.any(String) },
      body: { error: { status: 429 } },
    });
    expect(await fetchInPage(`${app.httpUrl}/v2/keys.listKeys`, {})).toMatchObject({
      status: 401,
      headers: { "www-authenticate": expect.stringMatching(/^Bearer/) },
      body: { error: { status: 401 } },
    });
  },
);

inBrowser(
  "the browser sends no call of a page whose origin is not allowed, and by default none of any other origin",
  async ({ app, allowedOrigin, otherOrigin, closed }) => {
    for (const [service, origin] of [
      [app, otherOrigin],
      [closed, allowedOrigin],
      [closed, otherOrigin],
    ] as const) {
      const { key } = await createWorkspace(service.httpUrl);
      await page.goto(origin);
      const authorization = `Bearer ${key}`;
      for (const path of ["/v2/keys.createKey", "/latchkey.v1.KeysService/CreateKey"]) {
        expect(await fetchInPage(service.httpUrl + path, { authorization })).toBe("TypeError: Failed to fetch");
      }
      const keys = expectSuccess(await post(service.httpUrl, "/v2/keys.listKeys", key, {}));
      expect(keys, "only the first key of the workspace").toHaveLength(1);
    }
  },
);
