import { describe, expect, it } from "vitest";
import { mutants } from "./mutants.js";
import { outdated } from "./verdict.js";

/**
 * Eleven times what the most hidden mutant takes on average (22 of 60,000 schedules found it out): one run in sixty
 * thousand misses it by chance.
 */
const schedules = 30_000;

describe("schedules find out a protocol in which", () => {
  it.each(mutants.map(({ name }, number) => [name, number]))("%s", { timeout: 120_000 }, async (_name, number) => {
    const broken: typeof import("./property.js") = await import(/* @vite-ignore */ `./property.js?mutant=${number}`);
    const { failure } = await broken.runSchedules(schedules);
    expect(failure).toContain(outdated);
  });
});
