import { describe, expect, it } from "vitest";
import { mutants } from "./mutants.js";
import { verifierMutants } from "./verifier-mutants.js";
import { outdated } from "./violations.js";

/** Many times the number that the mutant hardest to detect takes. A run ends with the first violation. */
const schedules = 150_000;

describe("schedules detect a verifier or a replica with which", () => {
  const cases = verifierMutants.map(
    ({ name, violation = outdated }, place) => [name, violation, mutants.length + place] as const,
  );
  it.each(cases)("%s", { timeout: 900_000 }, async (name, violation, number) => {
    const broken: typeof import("./verifier-property.js") = await import(
      /* @vite-ignore */ `./verifier-property.js?mutant=${number}`
    );
    const { failure, runs } = await broken.runVerifierSchedules(schedules);
    process.stdout.write(`verifier schedules: ${name}: ${failure ? `detected in schedule ${runs}` : "not detected"}\n`);
    expect(failure).toContain(violation);
  });
});
