import type { Fact, Replica } from "./state.js";

/** Whether no change is known, or may have been missed, that the fact does not contain. */
export function passesFence(fact: Fact, { horizon, lastChange }: Replica): boolean {
  return fact.asOf >= horizon && fact.asOf >= lastChange[0] && fact.asOf >= lastChange[1];
}
