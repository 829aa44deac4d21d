import { describe, expect, it } from "vitest";
import { mutants } from "./mutants.js";
import { outdated } from "./verdict.js";

/**
 * Many times what the most hidden mutant takes (acknowledgements as if every suspension were noticed: found out after 3,000 to
 * 20,000 schedules), so that none is missed by chance. A run ends with the first schedule that goes wrong.
 */
const schedules = 150_000;

describe("schedules find out a protocol in which", () => {
  const cases = mutants.map(({ name, complaint = outdated }, number) => [name, complaint, number] as const);
  it.each(cases)("%s", { timeout: 900_000 }, async (_name, complaint, number) => {
    const broken: typeof import("./property.js") = await import(/* @vite-ignore */ `./property.js?mutant=${number}`);
    const { failure } = await broken.runSchedules(schedules);
    expect(failure).toContain(complaint);
  });
});
