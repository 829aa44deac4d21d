import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { executable, noBrowser, openBrowser } from "../../support/browser.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { skipTest } from "../../support/skip.js";

let app: TestApp | undefined;
let browser: Browser | undefined;
let page: Page;
/** The requests of the browser, and its console messages and errors, since the page was opened. */
const requests: { url: string; authorization: string | undefined }[] = [];
const consoleMessages: string[] = [];

beforeAll(async () => {
  if (!executable) return;
  app = await openTestApp();
  browser = await openBrowser();
  page = await browser.newPage({ baseURL: app.httpUrl });
  page.on("request", (request) => {
    requests.push({ url: request.url(), authorization: request.headers()["authorization"] });
  });
  page.on("console", (message) => consoleMessages.push(message.text()));
  page.on("pageerror", ({ message }) => consoleMessages.push(message));
  await page.goto("/docs");
  await page.locator(".opblock").first().waitFor();
});
afterAll(async () => {
  await browser?.close();
  await app?.close();
});

/** A test on the page; skipped without a browser. */
function onPage(name: string, test: (httpUrl: string) => Promise<void>): void {
  it(name, async (context) => {
    if (app === undefined) return skipTest(context, noBrowser);
    await test(app.httpUrl);
    expect(consoleMessages).toEqual([]);
  });
}

onPage("the reference follows the preferred colour scheme, also when it changes", async () => {
  for (const [colorScheme, background] of [
    ["light", "rgb(251, 249, 245)"],
    ["dark", "rgb(23, 21, 16)"],
    ["light", "rgb(251, 249, 245)"],
  ] as const) {
    await page.emulateMedia({ colorScheme });
    await expect.poll(() => page.evaluate("getComputedStyle(document.body).backgroundColor")).toBe(background);
    await expect.poll(() => page.locator(":root.dark-mode").count()).toBe(colorScheme === "dark" ? 1 : 0);
  }
});

onPage("the reference fits a phone screen, also with an operation expanded", async () => {
  await page.setViewportSize({ width: 360, height: 800 });
  const operation = page.locator(".opblock").filter({ hasText: "/v2/keys.verifyKey" });
  await operation.locator(".opblock-summary-control").click();
  await operation.locator(".responses-wrapper").waitFor();
  expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(360);
});

onPage("Try it out sends the key to this service only, and stores nothing in the browser", async (httpUrl) => {
  const { key } = await createWorkspace(httpUrl);
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.locator(".btn.authorize").first().click();
  await page.locator("#auth-bearer-value").first().fill(key);
  await page.locator(".auth-btn-wrapper .authorize").first().click();
  await page.locator(".auth-btn-wrapper .btn-done").first().click();
  const operation = page.locator(".opblock").filter({ hasText: "/v1/identities.listIdentities" });
  await operation.locator(".opblock-summary-control").click();
  await operation.locator(".try-out__btn").click();
  await operation.locator(".execute").click();
  await operation.locator(".live-responses-table").getByText('"hasMore"').first().waitFor();

  const call = { url: `${httpUrl}/v1/identities.listIdentities`, authorization: `Bearer ${key}` };
  expect(requests.filter(({ authorization }) => authorization !== undefined)).toEqual([call]);
  expect(requests.filter(({ url }) => !url.startsWith(`${httpUrl}/`) && !url.startsWith("data:"))).toEqual([]);
  const stored = await page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]");
  expect(stored).toEqual([0, 0, ""]);
});
