import { existsSync } from "node:fs";
import type { Browser } from "playwright-core";

/** The browser that CHROMIUM_PATH names, or one that is installed; none if that is set and empty. */
export const executable =
  process.env["CHROMIUM_PATH"] ??
  ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);

/** Why a test that needs a browser is left out. */
export const noBrowser = "there is no Chromium: install it, or set CHROMIUM_PATH";

/** Starts the browser, without anything that it would do by itself. Its driver is loaded only where there is one. */
export async function openBrowser(): Promise<Browser> {
  const { chromium } = await import("playwright-core");
  return chromium.launch({
    ...(executable && { executablePath: executable }),
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
    // The run decides when it ends.
    handleSIGINT: false,
    handleSIGTERM: false,
    handleSIGHUP: false,
  });
}
