import { describe, expect, it } from "vitest";
import { mutants } from "./mutants.js";
import { verifierMutants } from "./verifier-mutants.js";
import { expired, outdated } from "./violations.js";

/**
 * Many times the number that the mutant hardest to detect takes. A run ends with the first violation. SCHEDULES=20000
 * for a shorter run.
 */
const schedules = Number(process.env["SCHEDULES"] ?? 150_000);

describe("schedules detect a verifier or a replica with which", () => {
  const cases = verifierMutants.map(
    ({ name, violation }, place) =>
      [name, violation ? [violation] : [outdated, expired], mutants.length + place] as const,
  );
  it.each(cases)("%s", { timeout: 900_000 }, async (name, violations, number) => {
    const broken: typeof import("./verifier-property.js") = await import(
      /* @vite-ignore */ `./verifier-property.js?mutant=${number}`
    );
    const { failure, runs } = await broken.runVerifierSchedules(schedules);
    process.stdout.write(`verifier schedules: ${name}: ${failure ? `detected in schedule ${runs}` : "not detected"}\n`);
    expect(violations.filter((violation) => failure?.includes(violation))).toHaveLength(1);
  });
});
