import axe from "axe-core";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { executable, noBrowser, openBrowser } from "../../support/browser.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { skipTest } from "../../support/skip.js";
import { errorsPath, pagePaths } from "./pages.js";

let app: TestApp;
let browser: Browser;
let page: Page;

beforeAll(async () => {
  if (!executable) return;
  app = await openTestApp();
  browser = await openBrowser();
  page = await browser.newPage({ baseURL: app.httpUrl });
});
afterAll(async () => {
  await browser?.close();
  await app?.close();
});

/** A test with its own window size and colour scheme; skipped without a browser. */
function inBrowser(
  name: string,
  { width = 1280, colorScheme = "light" }: WindowOptions,
  test: () => Promise<void>,
): void {
  it(name, async (context) => {
    if (!executable) skipTest(context, noBrowser);
    await page.setViewportSize({ width, height: 800 });
    await page.emulateMedia({ colorScheme, media: "screen" });
    await test();
  });
}

interface WindowOptions {
  readonly width?: number;
  readonly colorScheme?: "light" | "dark";
}

/** Evaluates an expression in the page. Its content security policy forbids scripts, but does not apply here. */
async function evaluate<T>(expression: string): Promise<T> {
  return (await page.evaluate(expression)) as T;
}

const examplePages = ["/", errorsPath, `${errorsPath}/application/invalid_input`, "/nowhere"];

inBrowser(
  "every page fits a phone screen, logs nothing to the console and loads nothing from other origins",
  { width: 360 },
  async () => {
    const consoleMessages: string[] = [];
    const origins = new Set<string>();
    page.on("console", (message) => consoleMessages.push(`${message.type()}: ${message.text()}`));
    page.on("pageerror", (error) => consoleMessages.push(error.message));
    page.on("request", (request) => origins.add(new URL(request.url()).origin));
    for (const path of pagePaths) {
      await page.goto(path);
      expect(
        await evaluate(`({
        title: document.title,
        width: document.documentElement.scrollWidth,
        styled: getComputedStyle(document.querySelector("header")).display === "flex",
      })`),
      ).toEqual({ title: expect.stringMatching(/^Latchkey: | · Latchkey$/), width: 360, styled: true });
    }
    expect(consoleMessages).toEqual([]);
    expect([...origins]).toEqual([app.httpUrl]);
  },
);

inBrowser("pages pass the accessibility rules of axe, including contrast in the dark colour scheme", {}, async () => {
  for (const path of examplePages) {
    await page.goto(path);
    await evaluate(axe.source);
    for (const [colorScheme, options] of [
      ["light", {}],
      ["dark", { runOnly: "color-contrast" }],
    ] as const) {
      await page.emulateMedia({ colorScheme });
      const { violations, passes } = await evaluate<axe.AxeResults>(`axe.run(${JSON.stringify(options)})`);
      const problems = violations.map(({ id, nodes }) => `${path} ${colorScheme} ${id}: ${nodes[0]?.html}`);
      expect(problems).toEqual([]);
      expect(passes.map(({ id }) => id)).toContain("color-contrast");
    }
  }
});

inBrowser("the underline of a link is below the underscores of its name", {}, async () => {
  await page.goto(errorsPath);
  const offsets = await evaluate<number[]>(
    `[...document.querySelectorAll("main a code")].map((code) => {
      const { textUnderlineOffset, fontSize } = getComputedStyle(code.parentElement);
      return parseFloat(textUnderlineOffset) / parseFloat(fontSize);
    })`,
  );
  expect(offsets.length).toBeGreaterThan(10);
  // Underscores are at most 0.3 em below the line.
  expect(Math.min(...offsets)).toBeGreaterThan(0.35);
});

inBrowser("pages follow the preferred colour scheme", {}, async () => {
  await page.goto("/");
  const lightness = async (colorScheme: "light" | "dark") => {
    await page.emulateMedia({ colorScheme });
    const color = await evaluate<string>("getComputedStyle(document.body).backgroundColor");
    return Math.max(...(color.match(/\d+/g) ?? []).map(Number));
  };
  expect(await lightness("light")).toBeGreaterThan(200);
  expect(await lightness("dark")).toBeLessThan(60);
});

inBrowser("the keyboard reaches every link and every command, with a visible focus", {}, async () => {
  await page.goto("/");
  const reachable = await evaluate<number>(`document.querySelectorAll("a, pre.command").length`);
  expect(reachable).toBeGreaterThan(10);
  const reached = new Set<number>();
  for (let step = 0; step < reachable; step++) {
    await page.keyboard.press("Tab");
    const { index, outline, left } = await evaluate<{ index: number; outline: number; left: number }>(`({
      index: [...document.querySelectorAll("a, pre.command")].indexOf(document.activeElement),
      outline: parseFloat(getComputedStyle(document.activeElement).outlineWidth),
      left: document.activeElement.getBoundingClientRect().left,
    })`);
    expect(outline).toBeGreaterThanOrEqual(2);
    expect(left).toBeGreaterThanOrEqual(0);
    reached.add(index);
  }
  expect([...reached]).toEqual([...Array(reachable).keys()]);
});

inBrowser("one click on a command selects all of it, without the prompt", {}, async () => {
  await page.goto("/");
  await page.locator(".command code").nth(1).click();
  expect(await evaluate("getSelection().toString()")).toBe(
    `curl -X POST ${app.httpUrl}/v1/keys.listKeys \\\n  -H "Authorization: Bearer $KEY"`,
  );
});

inBrowser("a page prints on a white background without its navigation", { colorScheme: "dark" }, async () => {
  await page.goto(`${errorsPath}/application/invalid_input`);
  expect(await page.locator("nav:visible").count()).toBe(2);
  await page.emulateMedia({ media: "print" });
  expect(await page.locator("nav:visible").count()).toBe(0);
  expect(await evaluate("getComputedStyle(document.body).backgroundColor")).toBe("rgb(255, 255, 255)");
});
