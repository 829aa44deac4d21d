import type { Site } from "./site.js";

/** One way in which a client tries to break the service. */
export interface Attack {
  readonly name: string;
  /** What must not happen. */
  readonly title: string;
  run(site: Site): Promise<Outcome>;
}

export interface Outcome {
  /** Whether the service withstood it. */
  readonly withstood: boolean;
  /** What was seen, with figures. */
  readonly observed: string;
}

/** An outcome from the conditions that must all hold, by their names. */
export function outcomeOf(conditions: Readonly<Record<string, boolean>>, observed: string): Outcome {
  const broken = Object.keys(conditions).filter((name) => !conditions[name]);
  const withstood = broken.length === 0;
  return { withstood, observed: withstood ? observed : `not ${broken.join(", not ")}: ${observed}` };
}
