import { describe, expect, it } from "vitest";
import { mutants } from "./mutants.js";
import { outdated } from "./violations.js";

/**
 * Many times the number that the mutant hardest to detect takes (acknowledgements as if every suspension were noticed:
 * it is detected after 3,000 to 20,000 schedules), so that none is missed by chance. A run ends with the first
 * violation.
 */
const schedules = 150_000;

describe("schedules detect a protocol in which", () => {
  const cases = mutants.map(({ name, violation = outdated }, number) => [name, violation, number] as const);
  it.each(cases)("%s", { timeout: 900_000 }, async (_name, violation, number) => {
    const broken: typeof import("./property.js") = await import(/* @vite-ignore */ `./property.js?mutant=${number}`);
    const { failure } = await broken.runSchedules(schedules);
    expect(failure).toContain(violation);
  });
});
