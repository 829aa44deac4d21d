import { defineConfig } from "vitest/config";
import { mutantsPlugin } from "./test/schedules/mutants-plugin.js";

export default defineConfig({
  plugins: [mutantsPlugin(import.meta.dirname)],
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/backends.ts"],
    // Real servers on two cores: generous limits, so that a busy machine does not fail a sound test.
    testTimeout: 30_000,
    hookTimeout: 60_000,
    maxWorkers: 2,
  },
});
