import { describe, expect, it } from "vitest";
import { type Exploration, explore } from "../explore.js";
import { type Bounds, protocol, without } from "./design.js";
import { createMachine, type Event } from "./machine.js";
import { mutants } from "./mutants.js";

const oneChange: Bounds = {
  lease: 2,
  queue: 2,
  pings: 1,
  changes: 1,
  revokesCaller: false,
  suspends: false,
  threads: false,
};

/** A busy machine may need many times the few seconds that an exploration takes. */
const TIMEOUT_MS = 300_000;

describe("a verifier never answers contrary to an acknowledged change, in every state of the model", () => {
  it.each<[string, Partial<Bounds>, number, readonly Event[]]>([
    ["with two pings at a time", { pings: 2 }, 700_000, ["a grant arrives", "a message is dropped"]],
    ["when the key is changed twice", { changes: 2 }, 500_000, ["refused locally"]],
    ["when its own key is revoked", { changes: 0, revokesCaller: true }, 80_000, []],
    ["when it is suspended", { suspends: true }, 500_000, ["a tick while the verifier is suspended"]],
    ["with threads", { threads: true }, 350_000, ["a call reads the right"]],
  ])("%s", { timeout: TIMEOUT_MS }, (name, bounds, minStates, required) => {
    const exploration = explore(createMachine(protocol, { ...oneChange, ...bounds }));
    const { states, events, violation } = report(name, exploration);
    expect(violation).toBeUndefined();
    expect(states).toBeGreaterThan(minStates);
    expect([...events]).toEqual(expect.arrayContaining([...requiredEvents, ...required]));
  });
});

describe("each rule is necessary: a verifier answers contrary to an acknowledged change", () => {
  it.each(mutants)("$when", { timeout: TIMEOUT_MS }, ({ rule, when, bounds, through }) => {
    const { violation = [] } = report(when, explore(createMachine(without(rule), { ...oneChange, ...bounds })));
    expect(violation.at(-1)).toBe("accepted locally");
    expect(inOrder(violation, through), violation.join("; ")).toEqual(through);
  });

  it("and each rule has a mutant", () => {
    expect(mutants.map(({ rule }) => rule).sort()).toEqual(Object.keys(protocol).sort());
  });
});

/** Without these events, the absence of violations would prove little. */
const requiredEvents: Event[] = [
  "accepted locally",
  "a call asks the service",
  "a stream to another replica is opened",
  "the stream ends",
  "the poll fails",
  "the poll is applied, without the changes in detail",
  "a message is dropped",
  "an invalidation of everything arrives",
];

/** The longest prefix of the expected events that the trace contains in this order. */
function inOrder(trace: readonly Event[], expected: readonly Event[]): Event[] {
  const found: Event[] = [];
  for (const event of trace) if (event === expected[found.length]) found.push(event);
  return found;
}

function report(name: string, exploration: Exploration<Event>): Exploration<Event> {
  const { states, violation } = exploration;
  const result = violation ? `broken in ${violation.length} steps` : "holds";
  process.stdout.write(`verifier model: ${name}: ${states} states, ${result}\n`);
  return exploration;
}
