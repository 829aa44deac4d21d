import { createCommandLine, flag, option, seed } from "../../../commands/command-line.js";
import { numberAbove0, numberOfAtLeast, oneOf } from "../../../commands/kinds.js";
import { brokenDesigns } from "./designs.js";
import { faultKinds } from "./faults.js";
import { postgresOption } from "./postgres-programs.js";

const faultFilter = {
  must: "parts of the names of faults, such as redis,suspended",
  read(text: string) {
    const parts = text.split(",");
    const isNamed = parts.every((part) => faultKinds.some(({ name }) => name.includes(part)));
    return isNamed ? faultKinds.filter(({ name }) => parts.some((part) => name.includes(part))) : undefined;
  },
};

/** The options of a round. Reports wrong usage and requests for help to the user, and throws. */
export const { read: readOptions } = createCommandLine({
  name: "faults",
  about: "Injects faults into replicas, PostgreSQL, Redis and the network, and checks that revocation stays immediate.",
  entries: {
    minutes: option("N", "duration of the round", numberAbove0, 1),
    seed: seed("selects the faults and their times; the same seed gives the same faults", numberAbove0),
    replicas: option("N", "number of replicas", numberAbove0, 3),
    rate: option("N", "target of calls per second; the round fails below two thirds of it", numberAbove0, 1_500),
    verifiers: option("N", "number of processes that verify keys themselves", numberOfAtLeast(0), 2),
    localRate: option(
      "N",
      "target of local verifications per second; the round fails below a third of it",
      numberAbove0,
      30_000,
    ),
    only: option(
      "texts",
      "only faults whose names contain one of these texts: redis,suspended",
      faultFilter,
      faultKinds,
      "all",
    ),
    design: option(
      "name",
      `run a broken design instead of the built service: ${brokenDesigns.join(", ")}`,
      oneOf(brokenDesigns),
    ),
    postgres: postgresOption,
    json: flag("print the summary as JSON"),
  },
  failsIf: "a violation is found, or the round has too little load or too few faults to prove anything",
});
