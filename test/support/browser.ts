import { existsSync } from "node:fs";
import type { Browser } from "playwright-core";

/** The browser that CHROMIUM_PATH names, or an installed one; none if CHROMIUM_PATH is set and empty. */
export const executable =
  process.env["CHROMIUM_PATH"] ??
  ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);

/** Why a test that needs a browser is skipped. */
export const noBrowser = "there is no Chromium: install it, or set CHROMIUM_PATH";

/** Starts the browser, without any background activity. The driver is loaded only if there is a browser. */
export async function openBrowser(): Promise<Browser> {
  const { chromium } = await import("playwright-core");
  return chromium.launch({
    ...(executable && { executablePath: executable }),
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
    // The test run closes it, so that signals do not.
    handleSIGINT: false,
    handleSIGTERM: false,
    handleSIGHUP: false,
  });
}
