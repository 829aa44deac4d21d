import axe from "axe-core";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { executable, noBrowser, openBrowser } from "../../support/browser.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { leaveOut } from "../../support/skip.js";
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

/** A test with a window of its own size and colours; left out where there is no browser. */
function inBrowser(name: string, { width = 1280, colorScheme = "light" }: Look, test: () => Promise<void>): void {
  it(name, async (context) => {
    if (!executable) leaveOut(context, noBrowser);
    await page.setViewportSize({ width, height: 800 });
    await page.emulateMedia({ colorScheme, media: "screen" });
    await test();
  });
}

interface Look {
  readonly width?: number;
  readonly colorScheme?: "light" | "dark";
}

/** Asks the page, from outside: its policy forbids scripts, and does not reach here. */
async function evaluate<T>(expression: string): Promise<T> {
  return (await page.evaluate(expression)) as T;
}

const examplePages = ["/", errorsPath, `${errorsPath}/application/invalid_input`];

inBrowser("every page fits a phone, stays silent and asks nobody else for anything", { width: 360 }, async () => {
  const said: string[] = [];
  const asked = new Set<string>();
  page.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => said.push(error.message));
  page.on("request", (request) => asked.add(new URL(request.url()).origin));
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
  expect(said).toEqual([]);
  expect([...asked]).toEqual([app.httpUrl]);
});

inBrowser("pages are accessible by the rules of axe; their contrast also in the dark", {}, async () => {
  for (const path of examplePages) {
    await page.goto(path);
    await evaluate(axe.source);
    for (const [colorScheme, options] of [
      ["light", {}],
      ["dark", { runOnly: "color-contrast" }],
    ] as const) {
      await page.emulateMedia({ colorScheme });
      const { violations, passes } = await evaluate<axe.AxeResults>(`axe.run(${JSON.stringify(options)})`);
      const found = violations.map(({ id, nodes }) => `${path} ${colorScheme} ${id}: ${nodes[0]?.html}`);
      expect(found).toEqual([]);
      expect(passes.map(({ id }) => id)).toContain("color-contrast");
    }
  }
});

inBrowser("pages are light or dark as the reader prefers", {}, async () => {
  await page.goto("/");
  const lightness = async (colorScheme: "light" | "dark") => {
    await page.emulateMedia({ colorScheme });
    const color = await evaluate<string>("getComputedStyle(document.body).backgroundColor");
    return Math.max(...(color.match(/\d+/g) ?? []).map(Number));
  };
  expect(await lightness("light")).toBeGreaterThan(200);
  expect(await lightness("dark")).toBeLessThan(60);
});

inBrowser("the keyboard reaches every link and every command, and one sees where it is", {}, async () => {
  await page.goto("/");
  const reachable = await evaluate<number>(`document.querySelectorAll("a, pre.command").length`);
  expect(reachable).toBeGreaterThan(10);
  const reached = new Set<number>();
  for (let step = 0; step < reachable; step++) {
    await page.keyboard.press("Tab");
    const { which, outline, left } = await evaluate<{ which: number; outline: number; left: number }>(`({
      which: [...document.querySelectorAll("a, pre.command")].indexOf(document.activeElement),
      outline: parseFloat(getComputedStyle(document.activeElement).outlineWidth),
      left: document.activeElement.getBoundingClientRect().left,
    })`);
    expect(outline).toBeGreaterThanOrEqual(2);
    expect(left).toBeGreaterThanOrEqual(0);
    reached.add(which);
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

inBrowser("a page prints on white without its navigation", { colorScheme: "dark" }, async () => {
  await page.goto(`${errorsPath}/application/invalid_input`);
  expect(await page.locator("nav:visible").count()).toBe(2);
  await page.emulateMedia({ media: "print" });
  expect(await page.locator("nav:visible").count()).toBe(0);
  expect(await evaluate("getComputedStyle(document.body).backgroundColor")).toBe("rgb(255, 255, 255)");
});
