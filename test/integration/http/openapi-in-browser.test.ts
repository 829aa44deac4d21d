import axe from "axe-core";
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

/** Expands createKey in a window of this width, if it is not expanded yet. */
async function expandCreateKey({ width = 1280 } = {}): Promise<void> {
  await page.setViewportSize({ width, height: 800 });
  const operation = page.locator(".opblock").filter({ hasText: "/v2/keys.createKey" });
  if ((await operation.locator(".responses-wrapper").count()) === 0) {
    await operation.locator(".opblock-summary-control").click();
  }
  await operation.locator(".responses-wrapper").waitFor();
}

/** Expands the list of all errors, if it is not expanded yet. */
async function expandErrors(): Promise<void> {
  await page.evaluate('document.querySelector(".info details").open = true');
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

/** Names that are not on one line. */
async function brokenNames(selector: string): Promise<string[]> {
  const names = await evaluateAll<[name: string, lines: number]>(
    selector,
    `(([range]) => {
      range.selectNodeContents(element);
      const boxes = [...range.getClientRects()].filter(({ width }) => width > 0);
      return [element.textContent, new Set(boxes.map(({ bottom }) => Math.round(bottom / 12))).size];
    })([document.createRange()])`,
  );
  expect(names.length).toBeGreaterThan(40);
  // The headers of errors are hidden.
  return names.filter(([, lines]) => lines > 1).map(([name]) => name);
}

onPage("paths, and the names of parameters, headers and errors, are on one line", async () => {
  await expandCreateKey();
  await expandErrors();
  const names = ".opblock-summary-path a, .parameter__name, .headers td:first-child, .info td code, .response a code";
  expect(await evaluateAll(names, "element.textContent")).toEqual(
    expect.arrayContaining(["Idempotency-Key", "X-Request-Id", "authorization/insufficient_permissions"]),
  );
  expect(await brokenNames(names)).toEqual([]);
});

onPage(
  "the reference fits a phone screen, with an operation and all errors expanded, and their names whole",
  async () => {
    await expandCreateKey({ width: 360 });
    await expandErrors();
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(360);
    expect(await brokenNames(".parameter__name, .headers td:first-child, .info td a, .response a code")).toEqual([]);
    const paths = await evaluateAll<number>(".opblock-summary-path", "element.scrollWidth - element.clientWidth");
    expect(Math.max(...paths)).toBe(0);
  },
);

/** The parts of the page whose contrast is checked: the other operations look like these, and would take most of the time. */
const contrastScope = { include: ["header", ".info", ".scheme-container", ".opblock.is-open", ".opblock-get"] };

onPage("texts have enough contrast in both colour schemes, also in an expanded operation", async () => {
  await expandCreateKey();
  await expandErrors();
  await page.evaluate(axe.source);
  for (const colorScheme of ["dark", "light"] as const) {
    await page.emulateMedia({ colorScheme });
    await expect.poll(() => page.locator(":root.dark-mode").count()).toBe(colorScheme === "dark" ? 1 : 0);
    const { violations, passes } = await page.evaluate<axe.AxeResults>(
      `axe.run(${JSON.stringify(contrastScope)}, { runOnly: "color-contrast" })`,
    );
    expect(violations.flatMap(({ nodes }) => nodes.map(({ html }) => `${colorScheme}: ${html}`))).toEqual([]);
    const checked = passes.flatMap(({ nodes }) => nodes.map(({ html }) => html)).join();
    for (const text of ["X-Request-Id", "Idempotency-Key", "POST", "GET"]) expect(checked).toContain(text);
  }
});

onPage("the keyboard reaches operations with a visible focus in both colour schemes", async () => {
  for (const colorScheme of ["dark", "light"] as const) {
    await page.emulateMedia({ colorScheme });
    await page.locator(".opblock-summary-control").nth(1).focus();
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Tab");
    const focus = "getComputedStyle(document.activeElement)";
    expect(
      await page.evaluate(`[document.activeElement.className, ${focus}.outlineStyle, ${focus}.outlineWidth]`),
    ).toEqual(["opblock-summary-control", "solid", "3px"]);
  }
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
