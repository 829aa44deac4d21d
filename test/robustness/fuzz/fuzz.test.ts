import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import { toText } from "./report.js";
import { gapsIn, runFuzz } from "./run.js";
import { createTally } from "./tally.js";

/** A short run, the same each time; `npm run fuzz` is the whole one, with other cases each time. */
const { FUZZ_CASES = "2000", FUZZ_SEED = "4242" } = process.env;

describe("whatever is sent", () => {
  let app: TestApp;
  beforeAll(async () => {
    app = await openTestApp();
  });
  afterAll(() => app.close());

  it("is answered from the catalogue, is stored whole or not at all, and comes back as it was", {
    timeout: 0,
  }, async () => {
    const options = { seed: Number(FUZZ_SEED), cases: Number(FUZZ_CASES) };
    process.stdout.write(`fuzz: seed ${options.seed}, ${options.cases} cases\n`);
    const run = await runFuzz({ ...app, operatorKey }, options);
    process.stdout.write(toText(run, options));
    expect(run.failings).toEqual([]);
  });
});

it("a run in which the service was often not ready does not hold", () => {
  const found = (triedAgain: number) => gapsIn({ ...createTally(), cases: 2_000, triedAgain }, 2_000);
  expect(found(328)).toEqual([]);
  expect(found(329).join()).toContain("was not ready 329 times");
});
