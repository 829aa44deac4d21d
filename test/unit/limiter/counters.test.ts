import type { Redis } from "ioredis";
import { beforeEach, describe, expect, it } from "vitest";
import { type Counters, type CounterUse, createCounters } from "../../../src/limiter/counters.js";
import { createLog } from "../../../src/observe/log.js";
import { noCache, type RedisCache } from "../../../src/storage/redis/client.js";

/** What the script of Redis returns for a check. An error, if the script fails. */
type Answer = number[] | { readonly notBegun: number[] } | Error | undefined;

/** Used and remaining milliseconds of each counter. */
let answer: Answer;
/** Those of the next commands, before `answer`. */
let answers: Answer[];
let commands: unknown[][];
let time: number;
let inUse: boolean;
let logLines: string[];
let counters: Counters;

beforeEach(() => {
  answer = [0, -2];
  answers = [];
  commands = [];
  time = 5_000;
  inUse = true;
  logLines = [];
  const log = createLog("trace", { destination: { write: (line: string) => void logLines.push(line) } });
  const command = async (...values: unknown[]) => {
    commands.push(values);
    const next = answers.length > 0 ? answers.shift() : answer;
    if (next instanceof Error) throw next;
    if (next === undefined) return undefined;
    return JSON.stringify("notBegun" in next ? [1, ...next.notBegun] : [0, ...next]);
  };
  const redis: RedisCache = {
    ...noCache,
    get inUse() {
      return inUse;
    },
    isCluster: false,
    client: { evalsha: command, eval: command } as unknown as Redis,
    // As the real one: a command that fails or times out resolves to undefined.
    store: (_operation, run) => run().catch(() => undefined),
  };
  counters = createCounters(redis, maxCounters, log, () => time);
});

const maxCounters = 3;
const use = (more: Partial<CounterUse> = {}): CounterUse => {
  return { key: "latchkey:limit:{key_1}:a", limit: 3, durationMs: 60_000, cost: 1, ...more };
};
/** Whether a window could begin with the last check: the last number of its arguments. */
const mayBegin = () => String(commands.at(-1)?.at(-1)).endsWith(",1]");
const check = async (...uses: CounterUse[]) => counters.check({ workspaceId: "ws_1", hashTag: "key_1", uses });

describe("a check of rate limits", () => {
  it("returns what is left after the use", async () => {
    answer = [1, 40_000];
    expect(await check(use())).toEqual({
      passed: true,
      states: [{ exceeded: false, remaining: 1, msLeft: 40_000 }],
      perProcess: false,
    });
  });

  it("begins a window if there is none", async () => {
    expect(await check(use())).toMatchObject({ passed: true, states: [{ remaining: 2, msLeft: 60_000 }] });
  });

  it("returns what is left without the use, if another limit refuses it", async () => {
    answer = [1, 40_000, 5, 20_000];
    expect(await check(use(), use({ key: "b", limit: 5 }))).toMatchObject({
      passed: false,
      states: [
        { exceeded: false, remaining: 2 },
        { exceeded: true, remaining: 0 },
      ],
    });
  });

  it("with a cost beyond the limit is refused, and leaves all of it", async () => {
    expect(await check(use({ cost: 4 }))).toMatchObject({
      passed: false,
      states: [{ exceeded: true, remaining: 3, msLeft: 60_000 }],
    });
  });

  it("with a cost of 0 passes at the limit, and is refused beyond it", async () => {
    answer = [3, 1_000];
    expect(await check(use({ cost: 0 }))).toMatchObject({ passed: true, states: [{ remaining: 0 }] });
    expect(await check(use({ cost: 0, limit: 2 }))).toMatchObject({ passed: false });
  });

  it("with a cost of 0 is refused by a limit of 0", async () => {
    const refused = { passed: false, states: [{ exceeded: true, remaining: 0 }] };
    expect(await check(use({ cost: 0, limit: 0 }))).toMatchObject(refused);
    inUse = false;
    expect(await check(use({ cost: 0, limit: 0 }))).toMatchObject(refused);
  });

  it("has at least 1 ms left in the last moment of a window", async () => {
    answer = [3, 0];
    expect(await check(use())).toMatchObject({ states: [{ msLeft: 1 }] });
  });

  it("sends the script if Redis does not have it", async () => {
    answer = new Error("NOSCRIPT No matching script. Please use EVAL.");
    await check(use());
    expect(commands.map(([script]) => String(script).length > 100)).toEqual([false, true]);
  });
});

describe("a refused use", () => {
  beforeEach(async () => {
    answer = [3, 10_000];
    expect(await check(use())).toMatchObject({ passed: false });
    commands = [];
  });

  it("is refused again without Redis, until its window ends", async () => {
    time += 4_000;
    expect(await check(use())).toEqual({
      passed: false,
      states: [{ exceeded: true, remaining: 0, msLeft: 6_000 }],
      perProcess: false,
    });
    expect(commands).toEqual([]);
    time += 6_000;
    answer = [0, -2];
    expect(await check(use())).toMatchObject({ passed: true });
    expect(commands).toHaveLength(1);
  });

  it("passes within 10 seconds if Redis has lost its data, however long the window is", async () => {
    const month = 30 * 24 * 3_600_000;
    answer = [3, month];
    const long = use({ key: "long", durationMs: month });
    expect(await check(long)).toMatchObject({ passed: false });
    commands = [];
    answer = [0, -2];
    time += 9_999;
    expect(await check(long)).toMatchObject({ passed: false, states: [{ msLeft: month - 9_999 }] });
    expect(commands).toEqual([]);
    time += 1;
    expect(await check(long)).toMatchObject({ passed: true, perProcess: false });
    expect(commands).toHaveLength(1);
  });

  it("passes at once when its limit is raised", async () => {
    expect(await check(use({ limit: 4 }))).toMatchObject({ passed: true });
    expect(commands).toHaveLength(1);
  });

  it("asks Redis for a cost of 0", async () => {
    expect(await check(use({ cost: 0 }))).toMatchObject({ passed: true });
    expect(commands).toHaveLength(1);
  });

  it("asks Redis if a further limit is checked with it, whose count is not known", async () => {
    answer = [3, 9_000, 1, 5_000];
    const both = [use(), use({ key: "b" })];
    expect(await check(...both)).toMatchObject({ passed: false, states: [{ remaining: 0 }, { remaining: 2 }] });
    expect(commands).toHaveLength(1);
    expect(await check(...both)).toMatchObject({ passed: false, states: [{ remaining: 0 }, { remaining: 2 }] });
    expect(commands).toHaveLength(1);
  });

  it("is forgotten before the end of the window, if the answer was slow", async () => {
    answer = [3, 10_000];
    const slow = check(use({ key: "slow" }));
    time += 3_000;
    await slow;
    commands = [];
    time += 7_500;
    await check(use({ key: "slow" }));
    expect(commands).toHaveLength(1);
  });
});

describe("without Redis", () => {
  it("this process counts, and says so", async () => {
    inUse = false;
    for (const remaining of [2, 1, 0]) {
      expect(await check(use())).toMatchObject({ passed: true, perProcess: true, states: [{ remaining }] });
    }
    expect(await check(use())).toMatchObject({ passed: false, perProcess: true, states: [{ exceeded: true }] });
    expect(commands).toEqual([]);
    inUse = true;
    expect(await check(use())).toMatchObject({ passed: true, perProcess: false });
  });

  it("a service without Redis counts synchronously", () => {
    const uses = [use()];
    const alone = createCounters(undefined, maxCounters, createLog("silent"), () => time);
    expect(alone.check({ workspaceId: "ws_1", hashTag: "key_1", uses })).toMatchObject({ perProcess: true });
  });

  it.each([
    ["fails", new Error("connection lost")],
    ["answers something else", undefined],
    ["answers too little", [1]],
  ])("if Redis %s, this process counts, and does not ask again at once", async (_what, wrong) => {
    answer = wrong;
    expect(await check(use())).toMatchObject({ passed: true, perProcess: true, states: [{ remaining: 2 }] });
    expect(await check(use())).toMatchObject({ passed: true, perProcess: true, states: [{ remaining: 1 }] });
    expect(commands).toHaveLength(1);
    const other = { workspaceId: "ws_1", hashTag: "key_2", uses: [use({ key: "other" })] };
    answer = [0, -2];
    expect(await counters.check(other)).toMatchObject({ perProcess: false });
  });

  it("a use that Redis refused before stays refused, and not per process", async () => {
    answer = [3, 10_000];
    await check(use());
    inUse = false;
    expect(await check(use())).toMatchObject({ passed: false, perProcess: false });
  });
});

it("checks are counted by scope and result", async () => {
  await check(use());
  answer = [3, 10_000];
  await check(use());
  await check(use());
  inUse = false;
  await check(use({ key: "b" }));
  await check(use({ key: "b", cost: 9 }));
  expect(counters.checks).toEqual({
    shared: { passed: 1, exceeded: 2 },
    per_process: { passed: 1, exceeded: 1 },
  });
});

describe("a workspace with as many counters in Redis as it may have", () => {
  beforeEach(async () => {
    for (let begun = 0; begun < maxCounters; begun++) {
      expect(await check(use())).toMatchObject({ passed: true, perProcess: false });
      expect(mayBegin()).toBe(true);
    }
  });

  it("begins no further one there: this process counts, which is logged once", async () => {
    answer = { notBegun: [0, -2] };
    for (const remaining of [2, 1, 0]) {
      expect(await check(use())).toMatchObject({ passed: true, perProcess: true, states: [{ remaining }] });
      expect(mayBegin()).toBe(false);
    }
    expect(await check(use())).toMatchObject({ passed: false, perProcess: true });
    expect(logLines).toEqual([expect.stringMatching(/"ws_1".*QUOTA_COUNTERS reached/)]);
  });

  it("goes on with its counters that exist", async () => {
    answer = [1, 40_000];
    expect(await check(use())).toMatchObject({ passed: true, perProcess: false, states: [{ remaining: 1 }] });
    expect(mayBegin()).toBe(false);
  });

  describe("and a check of one of them and of a further window", () => {
    const [open, further] = [use(), use({ key: "further" })];
    /** The first answer for the further one and the open one. */
    const notBegun = { notBegun: [0, -2, 1, 40_000] };
    /** What the further window has left after a use of it alone. */
    const useFurther = async () => {
      answer = { notBegun: [0, -2] };
      return (await check(further)).states[0]?.remaining;
    };

    beforeEach(() => {
      commands = [];
    });

    it("counts each where its window is", async () => {
      answers = [notBegun, [1, 39_000]];
      expect(await check(further, open)).toEqual({
        passed: true,
        states: [
          { exceeded: false, remaining: 2, msLeft: 60_000 },
          { exceeded: false, remaining: 1, msLeft: 39_000 },
        ],
        perProcess: true,
      });
      expect(commands.map(([, keys, ...more]) => more.slice(0, Number(keys)))).toEqual([
        [further.key, open.key],
        [open.key],
      ]);
      expect(mayBegin()).toBe(false);
      expect(await useFurther()).toBe(1);
      expect(counters.checks.per_process).toEqual({ passed: 2, exceeded: 0 });
    });

    it("counts nowhere if this process refuses", async () => {
      await useFurther();
      answers = [notBegun];
      expect(await check({ ...further, cost: 3 }, open)).toEqual({
        passed: false,
        states: [
          { exceeded: true, remaining: 2, msLeft: 60_000 },
          { exceeded: false, remaining: 2, msLeft: 40_000 },
        ],
        perProcess: true,
      });
      expect(commands).toHaveLength(2);
      expect(await useFurther()).toBe(1);
    });

    it("counts nowhere if Redis refuses meanwhile, which is remembered", async () => {
      answers = [notBegun, [3, 40_000]];
      expect(await check(further, open)).toMatchObject({
        passed: false,
        states: [
          { exceeded: false, remaining: 3 },
          { exceeded: true, remaining: 0 },
        ],
      });
      expect(await check(open)).toMatchObject({ passed: false, perProcess: false });
      expect(commands).toHaveLength(2);
      expect(await useFurther()).toBe(2);
    });

    it("begins again if the open window ends meanwhile", async () => {
      answers = [notBegun, { notBegun: [0, -2] }, { notBegun: [0, -2, 0, -2] }];
      expect(await check(further, open)).toMatchObject({
        passed: true,
        states: [{ remaining: 2 }, { remaining: 2 }],
        perProcess: true,
      });
      expect(commands).toHaveLength(3);
    });

    it("is counted once by this process alone if Redis then does not answer", async () => {
      answers = [notBegun, undefined];
      expect(await check(further, open)).toMatchObject({
        passed: true,
        states: [{ remaining: 2 }, { remaining: 2 }],
        perProcess: true,
      });
      expect(await useFurther()).toBe(1);
    });
  });

  it("begins others when the windows have ended", async () => {
    time += 2 * 60_000;
    await check(use());
    expect(mayBegin()).toBe(true);
  });

  it("does not limit other workspaces", async () => {
    await counters.check({ workspaceId: "ws_2", hashTag: "key_2", uses: [use()] });
    expect(mayBegin()).toBe(true);
  });
});

it("only uses that begin a window count as counters of a workspace", async () => {
  const uses: [CounterUse, number[]][] = [
    [use({ cost: 0 }), [0, -2]],
    [use(), [1, 40_000]],
    [use({ key: "refused", limit: 1, cost: 2 }), [0, -2]],
  ];
  for (let times = 0; times < maxCounters; times++) {
    for (const [each, before] of uses) {
      answer = before;
      await check(each);
    }
  }
  await check(use());
  expect(mayBegin()).toBe(true);
});
