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
const disabledEnabledDisabled: Bounds = {
  ...everyRow,
  commits: 3,
  losesWriters: false,
  rows: [WORKSPACE],
};
const disabledOnce: Bounds = { ...everyRow, slowClock: true, commits: 1, rows: [WORKSPACE] };
const disabledAndEnabled: Bounds = { ...disabledOnce, commits: 2 };

/** A busy machine may need many times the few seconds that an exploration takes. */
const TIMEOUT_MS = 120_000;

describe("immediate revocation holds in every state of the model", () => {
  it("whichever rows change", { timeout: TIMEOUT_MS }, () => {
    const { states, events, violation } = report("two changes of any rows", explore(createMachine(protocol, everyRow)));
    expect(violation).toBeUndefined();
    expect(states).toBeGreaterThan(850_000);
    expect([...events]).toEqual(expect.arrayContaining(requiredEvents));
  });

  it("when a workspace is disabled, enabled and disabled again", { timeout: TIMEOUT_MS }, () => {
    const exploration = explore(createMachine(protocol, disabledEnabledDisabled));
    const { states, violation } = report("three changes of a workspace", exploration);
    expect(violation).toBeUndefined();
    expect(states).toBeGreaterThan(250_000);
  });

  it("when a workspace is disabled and enabled, and the lease holder's clock is slower than the writer's", {
    timeout: TIMEOUT_MS,
  }, () => {
    const exploration = explore(createMachine(protocol, disabledAndEnabled));
    const { states, events, violation } = report("two changes of a workspace, a slow clock", exploration);
    expect(violation).toBeUndefined();
    expect(states).toBeGreaterThan(200_000);
    expect([...events]).toContain("a tick that the replica's clock misses");
  });
});

it("immediate revocation holds however late a transaction commits", { timeout: TIMEOUT_MS }, () => {
  const { events, violation } = report(
    "a transaction that commits late",
    explore(createMachine(protocol, lateCommits)),
  );
  expect(violation).toBeUndefined();
  expect([...events]).toContain("a row is changed by a transaction that began before the last commit");
});

describe("each rule is necessary: a call is accepted that must be refused", () => {
  it.each(mutants)("$when", ({ rule, when, bounds = disabledOnce, through }) => {
    const { violation = [] } = report(when, exploreOnly("accepted", without(rule), bounds));
    expect(violation.at(-1)).toMatch(/^accepted /);
    expect(inOrder(violation, through)).toEqual(through);
  });

  it("and each rule has a mutant", () => {
    expect(mutants.map(({ rule }) => rule).sort()).toEqual(Object.keys(protocol).sort());
  });
});

describe("without a rule, a call of an enabled workspace may be refused, too", () => {
  it.each<[string, Rule]>([
    ["if a write returns at its commit", "writesWait"],
    ["if entries from Redis are used without the fence", "redisIsFenced"],
  ])("%s", (when, rule) => {
    const { violation = [] } = report(`${when} (refusals)`, exploreOnly("refused", without(rule), disabledAndEnabled));
    expect(violation.at(-1)).toMatch(/^refused from /);
    expect(violation.filter((event) => event === "a row is changed")).toHaveLength(2);
  });
});

/** Without these events, the absence of violations would prove little. */
const requiredEvents: Event[] = [
  "accepted from memory",
  "accepted from Redis",
  "accepted from Postgres",
  "refused from memory",
  "refused from Redis",
  "refused from Postgres",
  "the fence refuses an entry from Redis",
  "the fence refuses a late read",
  "an entry from Redis is newer than the applied epoch",
  "a call begins without a lease",
  "the poll is applied, and a call that waited for it continues",
  "the poll fails",
  "a lost write is retried",
  "the cached value is confirmed as of the applied epoch",
  "old changes are forgotten",
  "the body arrives, and the caller is checked again",
  "accepted by the statement of a change",
  "refused by the statement of a change",
  "the deadline passes",
];

/** Ignores violations of the other kind, which may be nearer and would end the search. */
function exploreOnly(kind: "accepted" | "refused", design: Design, bounds: Bounds): Exploration<Event> {
  const machine = createMachine(design, bounds);
  return explore({
    ...machine,
    step: (state, announce) =>
      machine.step(state, (event, next, wrong = false) => announce(event, next, wrong && event.startsWith(kind))),
  });
}

/** The longest prefix of the expected events that the trace contains in this order. */
function inOrder(trace: readonly Event[], expected: readonly Event[]): Event[] {
  const found: Event[] = [];
  for (const event of trace) if (event === expected[found.length]) found.push(event);
  return found;
}

function report(name: string, exploration: Exploration<Event>): Exploration<Event> {
  const { states, violation } = exploration;
  const result = violation ? `broken in ${violation.length} steps` : "holds";
  process.stdout.write(`model: ${name}: ${states} states, ${result}\n`);
  return exploration;
}
