import { describe, expect, it } from "vitest";
import { type Changes, createChanges } from "../../src/auth/changes.js";

const key = "key_1";
const identity = "id_1";
const fact = (asOf: number, ...rows: string[]) => ({ rows: rows.length ? rows : [key], asOf });

/** The changes from the beginning, row by row, each with its epoch. */
function learnt(epoch: number, ...changed: [string, number][]): Changes {
  const changes = createChanges(0, "first");
  changes.learn(
    epoch,
    changed.map(([id, at]) => ({ id, epoch: at })),
  );
  return changes;
}

describe("a fact is admitted if no known change is missing in it", () => {
  it("one that was read at or after the last change of its row", () => {
    const changes = learnt(9, [key, 5]);
    expect([4, 5, 6, 9].map((asOf) => changes.admit(fact(asOf)))).toEqual([false, true, true, true]);
  });

  it("one of a row that never changed, however old within what is known", () => {
    expect(learnt(9, ["key_2", 5]).admit(fact(0))).toBe(true);
  });

  it("one of several rows, only if none of them has changed since", () => {
    const changes = learnt(9, [key, 3], [identity, 7]);
    expect([3, 6, 7].map((asOf) => changes.admit(fact(asOf, key, identity)))).toEqual([false, false, true]);
  });

  it("the last change of a row counts, in whatever order they are told", () => {
    const changes = learnt(9, [key, 8], [key, 5]);
    expect([5, 7, 8].map((asOf) => changes.admit(fact(asOf)))).toEqual([false, false, true]);
  });

  it("one that was read later than anything known here: nothing can be missing in it", () => {
    expect(learnt(9, [key, 5]).admit(fact(12))).toBe(true);
  });
});

describe("what lies before all that is known is not trusted", () => {
  it("before the beginning", () => {
    const changes = createChanges(100, "first");
    expect([99, 100].map((asOf) => changes.admit(fact(asOf)))).toEqual([false, true]);
  });

  it("before a change that was forgotten because there were too many: of any row, for nobody knows whose it was", () => {
    const changes = createChanges(0, "first", 3);
    changes.learn(
      5,
      [1, 2, 3, 4, 5].map((epoch) => ({ id: `key_${epoch}`, epoch })),
    );
    // Those of epochs 1 and 2 are forgotten, so what was read before 2 might lack one of them.
    expect([0, 1, 2].map((asOf) => changes.admit(fact(asOf, "key_9")))).toEqual([false, false, true]);
    expect([2, 3].map((asOf) => changes.admit(fact(asOf, "key_3")))).toEqual([false, true]);
  });

  it("a row that changes again and again is remembered once, and forgets nobody else", () => {
    const changes = createChanges(0, "first", 2);
    changes.learn(1, [{ id: "key_2", epoch: 1 }]);
    for (let epoch = 2; epoch <= 50; epoch++) changes.learn(epoch, [{ id: key, epoch }]);
    expect(changes.admit(fact(0, "key_3"))).toBe(true);
    expect(changes.admit(fact(49))).toBe(false);
  });
});

describe("starting over", () => {
  it("forgets everything before the present, and may go on in another history", () => {
    const changes = learnt(9, [key, 5]);
    changes.startOver(20, "second");
    expect(changes).toMatchObject({ epoch: 20, history: "second" });
    expect([9, 19, 20].map((asOf) => changes.admit(fact(asOf)))).toEqual([false, false, true]);
  });

  it("goes on with an epoch that lies before the last one, as that of a restored database does", () => {
    const changes = learnt(9, [key, 8]);
    changes.startOver(4, "second");
    expect(changes.epoch).toBe(4);
    expect(changes.admit(fact(4))).toBe(true);
    changes.learn(5, [{ id: key, epoch: 5 }]);
    expect([4, 5].map((asOf) => changes.admit(fact(asOf)))).toEqual([false, true]);
  });

  it("what is learnt in between does not begin another history", () => {
    const changes = learnt(9, [key, 5]);
    changes.learn(10, []);
    expect(changes).toMatchObject({ epoch: 10, history: "first" });
  });
});
