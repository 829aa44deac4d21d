import { defineConfig } from "vitest/config";
import { mutantsPlugin } from "./test/schedules/mutants-plugin.js";

/** Starts and ends the whole service, many times over: `npm run test:start`. All else is `npm test`. */
const starts = "test/start/**/*.test.ts";

export default defineConfig({
  plugins: [mutantsPlugin(import.meta.dirname)],
  test: {
    globalSetup: ["test/backends.ts"],
    // Real servers on two cores: generous limits, so that a busy machine does not fail a sound test.
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // Much of the time is waiting for processes and leases, so three share two cores well; and modules are loaded once
    // for each of them, not for each file: every file opens applications and databases of its own anyway.
    maxWorkers: 3,
    isolate: false,
    projects: [
      { extends: true, test: { name: "service", include: ["test/**/*.test.ts"], exclude: [starts] } },
      { extends: true, test: { name: "start", include: [starts] } },
    ],
  },
});
