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

/** Expands createKey in a window of a desktop, if it is not expanded yet. */
async function expandCreateKey(): Promise<void> {
  await page.setViewportSize({ width: 1280, height: 800 });
  const operation = page.locator(".opblock").filter({ hasText: "/v2/keys.createKey" });
  if ((await operation.locator(".responses-wrapper").count()) === 0) {
    await operation.locator(".opblock-summary-control").click();
  }
  await operation.locator(".responses-wrapper").waitFor();
}

/** Evaluates an expression for each element of the page that the selector matches. */
async function evaluateAll<T>(selector: string, expression: string): Promise<T[]> {
  return (await page.evaluate(
    `[...document.querySelectorAll(${JSON.stringify(selector)})].map((element) => ${expression})`,
  )) as T[];
}

onPage("an expanded operation is a few screens high, and links the page of each error", async () => {
  await expandCreateKey();
  const heights = await evaluateAll<number>(".opblock.is-open", "element.offsetHeight");
  expect(Math.max(...heights)).toBeGreaterThan(800);
  expect(Math.max(...heights)).toBeLessThan(3_500);
  const links = await evaluateAll<number>('.response[data-code="401"] a', "element.offsetHeight");
  expect(links.length).toBeGreaterThanOrEqual(4);
  expect(Math.min(...links)).toBeGreaterThan(0);
});

onPage("paths, and the names of parameters and headers, are on one line", async () => {
  await expandCreateKey();
  const names = ".opblock-summary-path a, .parameter__name, .headers td:first-child";
  const heights = await evaluateAll<[name: string, lines: number]>(
    names,
    `(([range]) => {
      range.selectNodeContents(element);
      const boxes = [...range.getClientRects()].filter(({ width }) => width > 0);
      return [element.textContent, new Set(boxes.map(({ bottom }) => Math.round(bottom / 12))).size];
    })([document.createRange()])`,
  );
  expect(heights.length).toBeGreaterThan(40);
  // The headers of errors are hidden.
  expect(heights.filter(([, lines]) => lines > 1)).toEqual([]);
  expect(heights).toContainEqual(["Idempotency-Key", 1]);
});

onPage("the names of headers are readable in the dark colour scheme", async () => {
  await page.emulateMedia({ colorScheme: "dark" });
  await expandCreateKey();
  await expect.poll(() => page.locator(":root.dark-mode").count()).toBe(1);
  const colors = await evaluateAll<string>(".headers td", "getComputedStyle(element).color");
  await page.emulateMedia({ colorScheme: "light" });
  expect(colors.length).toBeGreaterThan(3);
  for (const color of colors) expect(Math.min(...(color.match(/\d+/g) ?? []).map(Number))).toBeGreaterThan(180);
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
