import type { AttackContext } from "./site.js";

/** An attack on the service by a client, a tenant or another user of the machine. */
export interface Attack {
  readonly name: string;
  /** What the attacker tries. The service must prevent it. */
  readonly title: string;
  run(context: AttackContext): Promise<Outcome>;
}

export interface Outcome {
  /** Whether the attack failed. */
  readonly withstood: boolean;
  /** The observed behaviour, with figures. */
  readonly observed: string;
}

/** Builds an outcome. All conditions must be true; the false ones are named in it. */
export function outcomeOf(conditions: Readonly<Record<string, boolean>>, observed: string): Outcome {
  const broken = Object.keys(conditions).filter((name) => !conditions[name]);
  const withstood = broken.length === 0;
  return { withstood, observed: withstood ? observed : `failed: ${broken.join(", ")}; ${observed}` };
}
