import { defineConfig } from "vitest/config";
import { mutantsPlugin } from "./test/verification/schedules/mutants-plugin.js";

const unit = "test/unit/**/*.test.ts";

/** Starts and stops the whole service many times, and runs the project's commands: `npm run test:e2e`. */
const e2e = "test/e2e/**/*.test.ts";

/** Immediate revocation, with simulated time: `npm run test:revocation`. */
const revocation = "test/verification/{model,schedules}/**/*.test.ts";

/** Immediate revocation on real replicas, clocks and backends: the second part of `npm run test:revocation`. */
const replicas = [
  "test/verification/{clocks,failover,faults}/**/*.test.ts",
  "test/integration/{revocation,verifier}/**/*.test.ts",
];

/** Each part of the service on real backends: `npm run test:integration`. */
const integration = "test/integration/**/*.test.ts";

/** Overload and invalid input: `npm run test:robustness`. */
const robustness = "test/robustness/**/*.test.ts";

/** Installs both packages with npm and pnpm: `npm run test:packages`. */
const packages = "test/packages/**/*.test.ts";

/** Set for each project: set once for all, it would also run for the root, which has no tests. */
const globalSetup = ["test/support/backends.ts"];

export default defineConfig({
  plugins: [mutantsPlugin(import.meta.dirname)],
  test: {
    // Real servers on two cores: generous limits, so that a busy machine does not fail a correct test.
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // The teardown scans all that the run has left behind for secrets.
    teardownTimeout: 60_000,
    // Tests mostly wait for processes and leases, so three share two cores well. Without isolation, modules are loaded once
    // for each of them, not for each file: every file opens its own applications and databases anyway.
    maxWorkers: 3,
    isolate: false,
    sequence: { groupOrder: 1 },
    projects: [
      {
        extends: true,
        // These wait for nothing, so they have one worker for each core, and run before the others. A larger space for new
        // objects saves a tenth of their CPU time.
        test: {
          name: "unit",
          include: [unit],
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
          execArgv: ["--min-semi-space-size=64", "--max-semi-space-size=64"],
        },
      },
      {
        extends: true,
        test: {
          name: "service",
          include: ["test/{contract,meta}/**/*.test.ts"],
          globalSetup,
        },
      },
      { extends: true, test: { name: "integration", include: [integration], exclude: replicas, globalSetup } },
      { extends: true, test: { name: "revocation", include: [revocation], globalSetup } },
      {
        extends: true,
        // After the others, and one after the other: a round of fault injection must make enough calls to prove something.
        test: { name: "replicas", include: replicas, globalSetup, maxWorkers: 1, sequence: { groupOrder: 2 } },
      },
      { extends: true, test: { name: "robustness", include: [robustness], globalSetup } },
      { extends: true, test: { name: "e2e", include: [e2e], globalSetup, testTimeout: 120_000 } },
      { extends: true, test: { name: "packages", include: [packages], testTimeout: 180_000, hookTimeout: 180_000 } },
    ],
  },
});
