import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import { toText } from "./report.js";
import { gapsIn, runFuzz } from "./run.js";
import { createTally } from "./tally.js";

/** A short run with a fixed seed. `npm run fuzz` is the full run, with another seed each time. */
const { FUZZ_CASES = "2000", FUZZ_SEED = "4242" } = process.env;

describe("fuzzing every operation over every protocol", () => {
  let app: TestApp;
  beforeAll(async () => {
    app = await openTestApp();
  });
  afterAll(() => app.close());

  it("errors are of the catalogue, changes are stored completely or not at all, values are read back unchanged", {
    timeout: 0,
  }, async () => {
    const options = { seed: Number(FUZZ_SEED), cases: Number(FUZZ_CASES) };
    process.stdout.write(`fuzz: seed ${options.seed}, ${options.cases} cases\n`);
    const run = await runFuzz({ ...app, operatorKey }, options);
    process.stdout.write(toText(run, options));
    expect(run.failings).toEqual([]);
  });
});

it("a fuzz run with too many retries because of 503 responses fails", () => {
  const gapsWith = (triedAgain: number) => gapsIn({ ...createTally(), cases: 2_000, triedAgain }, 2_000);
  expect(gapsWith(328)).toEqual([]);
  expect(gapsWith(329).join()).toContain("was unavailable 329 times");
});
