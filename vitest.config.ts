import { defineConfig } from "vitest/config";
import { mutantsPlugin } from "./test/schedules/mutants-plugin.js";

/** Starts and ends the whole service, many times over: `npm run test:start`. */
const starts = "test/start/**/*.test.ts";

/** That revocation is immediate: `npm run test:revocation`. All else is `npm test`. */
const revocation = ["model", "schedules", "faults", "failover"].map((folder) => `test/${folder}/**/*.test.ts`);

/** Named by each project: named once for all, the backends would be started for the root, too, which has no tests. */
const globalSetup = ["test/backends.ts"];

export default defineConfig({
  plugins: [mutantsPlugin(import.meta.dirname)],
  test: {
    // Real servers on two cores: generous limits, so that a busy machine does not fail a sound test.
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // In the end, all that was left behind is searched for secrets.
    teardownTimeout: 60_000,
    // Much of the time is waiting for processes and leases, so three share two cores well; and modules are loaded once
    // for each of them, not for each file: every file opens applications and databases of its own anyway.
    maxWorkers: 3,
    isolate: false,
    projects: [
      {
        extends: true,
        test: { name: "service", include: ["test/**/*.test.ts"], exclude: [starts, ...revocation], globalSetup },
      },
      { extends: true, test: { name: "revocation", include: revocation, globalSetup } },
      { extends: true, test: { name: "start", include: [starts], globalSetup, testTimeout: 120_000 } },
    ],
  },
});
