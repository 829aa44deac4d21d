import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { mutants } from "../verification/schedules/mutants.js";
import { verifierMutants } from "../verification/schedules/verifier-mutants.js";

// `npm run test:revocation` checks this, too, after some minutes.
it.each([...mutants, ...verifierMutants])("the text that a mutant replaces occurs once: $name", ({ file, text }) => {
  expect(readFileSync(file, "utf8").split(text)).toHaveLength(2);
});
