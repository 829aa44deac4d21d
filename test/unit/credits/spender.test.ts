import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { abortCall, type Call } from "../../../src/call/call.js";
import { createCreditSpender, type SpenderSettings, spenderSettings } from "../../../src/credits/spender.js";
import type { CreditsStore, Spend, Spent } from "../../../src/credits/store.js";
import { ApiError, cancelled } from "../../../src/errors.js";

/** A statement of the spender, which the test answers. */
interface Statement {
  readonly spends: readonly Spend[];
  readonly lockWaitMs: number;
  answer(outcomes: (Spent | undefined)[]): Promise<void>;
  fail(error: Error): Promise<void>;
}

function open(settings: Partial<SpenderSettings> = {}) {
  const statements: Statement[] = [];
  let shed = 0;
  const store: CreditsStore = {
    spend: (spends, lockWaitMs) =>
      new Promise((resolve, reject) => {
        const settled = async () => {
          for (let turns = 0; turns < 3; turns++) await turn();
        };
        statements.push({
          spends: spends.map(({ keyId, cost }) => ({ keyId, cost })),
          lockWaitMs,
          answer(outcomes) {
            resolve(outcomes);
            return settled();
          },
          fail(error) {
            reject(error);
            return settled();
          },
        });
      }),
  };
  const spender = createCreditSpender(store, () => void shed++, { ...spenderSettings, ...settings });
  return {
    statements,
    /** The statement that was sent last. */
    last: () => statements.at(-1) ?? expect.fail("no statement was sent"),
    shed: () => shed,
    spend(keyId: string, cost = 1, call = callOf("workspace"), isCurrent = () => true) {
      const outcome = spender.spend(call, keyId, cost, isCurrent);
      outcome.catch(() => {}); // awaited later
      return outcome;
    },
  };
}

function callOf(workspaceId: string): Call {
  return { requestId: "req", deadline: Number.POSITIVE_INFINITY, workspaceId };
}

const spent = (remaining: number): Spent => ({ spent: true, remaining });
const lockTimeout = () => Object.assign(new Error("canceling statement due to lock timeout"), { code: "55P03" });
const keysOf = ({ spends }: Statement) => spends.map(({ keyId }) => keyId);

describe("spends", () => {
  it("that arrive together are one statement; those that arrive meanwhile are the next", async () => {
    const { spend, statements, last } = open();
    const first = [spend("a", 2), spend("b", 3)];
    await turn();
    const second = [spend("c"), spend("a")];
    await turn();
    expect(statements).toHaveLength(1);
    expect(last().spends).toEqual([
      { keyId: "a", cost: 2 },
      { keyId: "b", cost: 3 },
    ]);
    await last().answer([spent(1), { spent: false, remaining: 2 }]);
    expect(await Promise.all(first)).toEqual([spent(1), { spent: false, remaining: 2 }]);
    expect(statements).toHaveLength(2);
    expect(keysOf(last())).toEqual(["c", "a"]);
    await last().answer([spent(7), spent(0)]);
    expect(await Promise.all(second)).toEqual([spent(7), spent(0)]);
  });

  it("are at most as many in a statement as allowed, with turns for each workspace", async () => {
    const { spend, last } = open({ maxBatch: 3 });
    for (let count = 0; count < 10; count++) spend("flood");
    const other = spend("other", 1, callOf("another workspace"));
    await turn();
    expect(keysOf(last())).toEqual(["flood", "other", "flood"]);
    await last().answer([spent(1), spent(2), spent(3)]);
    expect(await other).toEqual(spent(2));
  });

  it("fail together if their statement fails, and the next are sent", async () => {
    const { spend, statements, last } = open();
    const failed = [spend("a"), spend("b")];
    await turn();
    const next = spend("c");
    await last().fail(Object.assign(new Error("connection closed"), { code: "CONNECTION_CLOSED" }));
    for (const one of failed) await expect(one).rejects.toThrow("connection closed");
    expect(statements).toHaveLength(2);
    await last().answer([spent(1)]);
    expect(await next).toEqual(spent(1));
  });

  it("beyond the limit are shed", async () => {
    const { spend, shed } = open({ waiting: { ofOneWorkspace: 2, total: 10 } });
    spend("a");
    spend("a");
    const beyond = spend("a");
    await expect(beyond).rejects.toThrow(/overloaded/);
    expect(shed()).toBe(1);
  });
});

describe("a call that ends", () => {
  it("before its spend was sent spends nothing", async () => {
    const { spend, last } = open();
    spend("a");
    await turn();
    const call = callOf("workspace");
    const aborted = spend("b", 1, call);
    spend("c");
    abortCall(call, cancelled());
    await expect(aborted).rejects.toBeInstanceOf(ApiError);
    await last().answer([spent(1)]);
    expect(keysOf(last())).toEqual(["c"]);
  });

  it("after its spend was sent ends at once; the statement continues", async () => {
    const { spend, last, statements } = open();
    const call = callOf("workspace");
    const aborted = spend("a", 1, call);
    const other = spend("b");
    await turn();
    abortCall(call, cancelled());
    await expect(aborted).rejects.toBeInstanceOf(ApiError);
    await last().answer([spent(1), spent(2)]);
    expect(await other).toEqual(spent(2));
    expect(statements).toHaveLength(1);
  });

  it("before it began spends nothing", async () => {
    const { spend, statements } = open();
    const call = callOf("workspace");
    abortCall(call, cancelled());
    await expect(spend("a", 1, call)).rejects.toBeInstanceOf(ApiError);
    await turn();
    expect(statements).toEqual([]);
  });
});

describe("a spend whose reason no longer holds", () => {
  const call = callOf("workspace");

  it("when its statement is sent is left out, and its call learns that", async () => {
    const { spend, statements, last } = open();
    let current = true;
    spend("a");
    await turn();
    const outdated = spend("b", 1, call, () => current);
    const other = spend("c");
    current = false;
    await last().answer([spent(1)]);
    expect(keysOf(last())).toEqual(["c"]);
    expect(await outdated).toBeUndefined();
    await last().answer([spent(2)]);
    expect(await other).toEqual(spent(2));
    expect(statements).toHaveLength(2);
  });

  it("is left out of the repetition without locked rows, even if the reason holds again later", async () => {
    const { spend, last } = open();
    const answers = [true, false, true];
    const outdated = spend("b", 1, call, () => answers.shift() ?? true);
    const other = spend("c");
    await turn();
    expect(keysOf(last())).toEqual(["b", "c"]);
    await last().fail(lockTimeout());
    expect(keysOf(last())).toEqual(["c"]);
    expect(await outdated).toBeUndefined();
    await last().answer([undefined]);
    expect(keysOf(last())).toEqual(["c"]);
    await last().answer([spent(2)]);
    expect(await other).toEqual(spent(2));
  });

  it("by the time that its statement begins is not made, and its call learns that", async () => {
    const { spend, last } = open();
    const outdated = [spend("a"), spend("b")];
    await turn();
    await last().fail(Object.assign(new Error("the statement began after the lease"), { code: "LK002" }));
    expect(await Promise.all(outdated)).toEqual([undefined, undefined]);
  });

  it("is left out of the statements for a key whose row was locked", async () => {
    const { spend, statements, last } = open();
    let current = true;
    const first = spend("locked");
    await turn();
    await last().fail(lockTimeout());
    await last().answer([undefined]);
    const outdated = spend("locked", 1, call, () => current);
    await turn();
    current = false;
    await last().answer([spent(1)]);
    expect(await first).toEqual(spent(1));
    expect(await outdated).toBeUndefined();
    expect(statements).toHaveLength(3);
    const next = spend("locked");
    await turn();
    await last().answer([spent(0)]);
    expect(await next).toEqual(spent(0));
  });
});

describe("a key whose row stays locked", () => {
  it("gets statements of its own; the others of its statement are spent without it", async () => {
    const { spend, statements, last } = open();
    const locked = spend("locked");
    const free = spend("free");
    await turn();
    expect(last().lockWaitMs).toBe(spenderSettings.lockWaitMs);
    await last().fail(lockTimeout());
    expect(last()).toMatchObject({ lockWaitMs: 0, spends: [{ keyId: "locked" }, { keyId: "free" }] });
    await last().answer([undefined, spent(5)]);
    expect(await free).toEqual(spent(5));
    expect(last()).toMatchObject({ lockWaitMs: spenderSettings.separateLockWaitMs, spends: [{ keyId: "locked" }] });
    expect(statements).toHaveLength(3);
    await last().answer([spent(6)]);
    expect(await locked).toEqual(spent(6));
  });

  it("keeps its later spends apart, so that none of them delays the others again", async () => {
    const { spend, statements, last } = open();
    spend("locked");
    await turn();
    await last().fail(lockTimeout());
    await last().answer([undefined]);
    const separate = last();
    const later = spend("locked");
    const free = spend("free");
    await turn();
    expect(keysOf(last())).toEqual(["free"]);
    await last().answer([spent(1)]);
    expect(await free).toEqual(spent(1));
    await separate.answer([spent(2)]);
    expect(keysOf(last())).toEqual(["locked"]);
    await last().answer([spent(3)]);
    expect(await later).toEqual(spent(3));
    spend("locked");
    await turn();
    expect(last().lockWaitMs).toBe(spenderSettings.lockWaitMs);
    expect(statements).toHaveLength(6);
  });

  it("is refused if it stays locked or missing, and its spends beyond a limit are shed", async () => {
    const { spend, last, shed } = open({ maxBatch: 2 });
    const first = spend("locked");
    await turn();
    await last().fail(lockTimeout());
    await last().answer([undefined]);
    const separate = last();
    const more = [spend("locked"), spend("locked"), spend("locked")];
    await turn();
    expect(shed()).toBe(1);
    await separate.fail(lockTimeout());
    await expect(first).rejects.toThrow("lock timeout");
    await last().answer([undefined, undefined]);
    await expect(more[0]).rejects.toMatchObject({ detail: expect.stringContaining("The credits of this key") });
  });

  it("occupies no more than its share of connections with others that are locked", async () => {
    const { spend, statements, last } = open({ maxSeparateStatements: 2 });
    for (const keyId of ["a", "b", "c"]) spend(keyId);
    await turn();
    await last().fail(lockTimeout());
    await last().answer([undefined, undefined, undefined]);
    expect(statements.slice(2).map(keysOf)).toEqual([["a"], ["b"]]);
    await statements[2]?.answer([spent(1)]);
    expect(keysOf(last())).toEqual(["c"]);
  });
});
