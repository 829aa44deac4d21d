import { describe, expect, it } from "vitest";
import { type Bounds, type Design, KEY, protocol, type Rule, UNRELATED, WORKSPACE, without } from "./design.js";
import type { Event } from "./events.js";
import { type Exploration, explore } from "./explore.js";
import { lateCommits, mutants } from "./mutants.js";
import { createMachine } from "./protocol.js";

const everyRow: Bounds = {
  lease: 2,
  slowClock: false,
  commits: 2,
  losesWriters: true,
  commitsLate: false,
  rows: [WORKSPACE, KEY, UNRELATED],
};
const thereAndBackAndThere: Bounds = {
  ...everyRow,
  commits: 3,
  losesWriters: false,
  rows: [WORKSPACE],
};
const disabledOnce: Bounds = { ...everyRow, slowClock: true, commits: 1, rows: [WORKSPACE] };
const disabledAndEnabled: Bounds = { ...disabledOnce, commits: 2 };

/** A busy machine may take many times the seconds that this needs. */
const PATIENCE = 120_000;

describe("the protocol holds in every state", () => {
  it("whichever rows change", { timeout: PATIENCE }, () => {
    const { states, events, violation } = report("two changes of any rows", explore(createMachine(protocol, everyRow)));
    expect(violation).toBeUndefined();
    expect(states).toBeGreaterThan(850_000);
    expect([...events]).toEqual(expect.arrayContaining(everythingThatMustHappen));
  });

  it("when a workspace is disabled, enabled and disabled again", { timeout: PATIENCE }, () => {
    const exploration = explore(createMachine(protocol, thereAndBackAndThere));
    const { states, violation } = report("three changes of a workspace", exploration);
    expect(violation).toBeUndefined();
    expect(states).toBeGreaterThan(250_000);
  });

  it("when a workspace is disabled and enabled, and the holder's clock is slower than the writer's", {
    timeout: PATIENCE,
  }, () => {
    const exploration = explore(createMachine(protocol, disabledAndEnabled));
    const { states, events, violation } = report("two changes of a workspace, a slow clock", exploration);
    expect(violation).toBeUndefined();
    expect(states).toBeGreaterThan(200_000);
    expect([...events]).toContain("a tick that the replica's clock misses");
  });
});

it("the protocol holds however late a transaction commits", { timeout: PATIENCE }, () => {
  const { events, violation } = report(
    "a transaction that commits late",
    explore(createMachine(protocol, lateCommits)),
  );
  expect(violation).toBeUndefined();
  expect([...events]).toContain("a row is changed by a transaction that had begun before the last commit");
});

describe("no rule can be left out: a call is accepted that must not be", () => {
  it.each(mutants)("$when", ({ rule, when, bounds = disabledOnce, through }) => {
    const { violation = [] } = report(when, exploreOnly("accepted", without(rule), bounds));
    expect(violation.at(-1)).toMatch(/^accepted /);
    expect(inOrder(violation, through)).toEqual(through);
  });

  it("and each rule is tried", () => {
    expect(mutants.map(({ rule }) => rule).sort()).toEqual(Object.keys(protocol).sort());
  });
});

describe("the other half of the promise can be broken too: an enabled workspace is refused", () => {
  it.each<[string, Rule]>([
    ["if a write returns at its commit", "writesWait"],
    ["if Redis is believed without the fence", "redisIsFenced"],
  ])("%s", (when, rule) => {
    const { violation = [] } = report(`${when} (refusals)`, exploreOnly("refused", without(rule), disabledAndEnabled));
    expect(violation.at(-1)).toMatch(/^refused from /);
    expect(violation.filter((event) => event === "a row is changed")).toHaveLength(2);
  });
});

/** Without these, that nothing goes wrong would prove little. */
const everythingThatMustHappen: Event[] = [
  "accepted from a held fact",
  "accepted from Redis",
  "accepted from Postgres",
  "refused from a held fact",
  "refused from Redis",
  "refused from Postgres",
  "the fence refuses a fact from Redis",
  "the fence refuses a late read",
  "a fact from Redis is later than what is applied",
  "a call begins without a lease",
  "the poll is applied, and a call that waited for it goes on",
  "the poll fails",
  "a lost write is tried again",
  "the held fact is confirmed by what is applied",
  "old changes are forgotten",
  "the body arrives, and the caller is checked again",
  "accepted by the statement of a change",
  "refused by the statement of a change",
  "the deadline passes",
];

/** Passes wrong answers of the other kind over, which may be nearer and would end the search. */
function exploreOnly(kind: "accepted" | "refused", design: Design, bounds: Bounds): Exploration<Event> {
  const machine = createMachine(design, bounds);
  return explore({
    ...machine,
    step: (state, announce) =>
      machine.step(state, (event, next, wrong = false) => announce(event, next, wrong && event.startsWith(kind))),
  });
}

/** As many of the expected events, from the first on, as the trace holds in this order. */
function inOrder(trace: readonly Event[], expected: readonly Event[]): Event[] {
  const found: Event[] = [];
  for (const event of trace) if (event === expected[found.length]) found.push(event);
  return found;
}

function report(name: string, exploration: Exploration<Event>): Exploration<Event> {
  const { states, violation } = exploration;
  const verdict = violation ? `broken in ${violation.length} steps` : "holds";
  process.stdout.write(`model: ${name}: ${states} states, ${verdict}\n`);
  return exploration;
}
