import { createCommandLine, flag, option, seed } from "../../../commands/command-line.js";
import { numberAbove0, oneOf } from "../../../commands/kinds.js";
import { brokenDesigns } from "./designs.js";
import { faultKinds } from "./faults.js";
import { postgresOption } from "./postgres-programs.js";

const partsOfNames = {
  must: "parts of the names of faults, such as redis,suspended",
  read(text: string) {
    const parts = text.split(",");
    const isNamed = parts.every((part) => faultKinds.some(({ name }) => name.includes(part)));
    return isNamed ? faultKinds.filter(({ name }) => parts.some((part) => name.includes(part))) : undefined;
  },
};

/** What a round is to be like. Wrong usage and the wish for help are told to the user, and thrown. */
export const { read: readOptions } = createCommandLine({
  name: "faults",
  about: "Looks for a key that is accepted after its end, while replicas, Redis and the network fail.",
  entries: {
    minutes: option("N", "how long", numberAbove0, 1),
    seed: seed("which faults come when; the same seed, the same faults", numberAbove0),
    replicas: option("N", "how many processes of the service", numberAbove0, 3),
    rate: option("N", "calls per second to aim at; the round fails below two thirds of it", numberAbove0, 1_500),
    only: option(
      "texts",
      "only faults with one of these in their names: redis,suspended",
      partsOfNames,
      faultKinds,
      "all",
    ),
    design: option(
      "name",
      `a broken design in place of the sound one: ${brokenDesigns.join(", ")}`,
      oneOf(brokenDesigns),
    ),
    postgres: postgresOption,
    json: flag("the summary as JSON"),
  },
  failsIf: "the promise is broken, or too little happened to tell",
});
