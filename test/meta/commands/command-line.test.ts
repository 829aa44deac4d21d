import { describe, expect, it, vi } from "vitest";
import { readOptions as readBench } from "../../../bench/options.js";
import { readOptions as readOverload } from "../../../bench/overload/options.js";
import { rows } from "../../../bench/rows.js";
import { optionsOrExit } from "../../../commands/command-line.js";
import { readOptions as readAttack } from "../../robustness/attack/options.js";
import { readOptions as readFuzz } from "../../robustness/fuzz/options.js";
import { readOptions as readSoak } from "../../robustness/soak/options.js";
import { brokenDesigns } from "../../verification/faults/designs.js";
import { readOptions as readFaults } from "../../verification/faults/options.js";

type Read = (args: readonly string[]) => object;

/** How each command parses its options, and the result without options. */
const commands = {
  bench: { read: (args) => readBench(args, rows), none: { rows, quick: false, json: false, write: false } },
  overload: { read: readOverload, none: { seconds: 10, json: false, subjects: [{}, {}, {}] } },
  faults: { read: readFaults, none: { minutes: 1, replicas: 3, rate: 1_500, json: false } },
  fuzz: { read: readFuzz, none: { cases: 20_000, path: undefined, json: false } },
  attack: { read: readAttack, none: { attacks: [], json: false } },
  soak: { read: readSoak, none: { minutes: 10, faults: false, leak: 0, buffers: false, json: false } },
} satisfies Record<string, { read: Read; none: object }>;

type Name = keyof typeof commands;
const names = Object.keys(commands) as Name[];

describe.each(names)("npm run %s", (name) => {
  it("prints its usage to stdout with --help, and exits with 0", () => {
    const { code, stdout, stderr } = run(name, ["--help"]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(new RegExp(`^Usage: npm run ${name} -- \\[options\\]`));
    for (const option of Object.keys(options[name])) expect(stdout).toMatch(new RegExp(`^ +--${option} `, "m"));
    expect(stdout).toContain("The exit code is 1 if ");
  });

  it("needs no options", () => {
    expect(commands[name].read([])).toMatchObject(commands[name].none);
  });

  it("refuses an unknown option, and suggests a similar one", () => {
    expectRefusal(name, ["--jsn"], "unknown option '--jsn'\n(Did you mean --json?)");
  });

  it("refuses surplus arguments", () => {
    const takesNames = ["attack", "bench", "overload"].includes(name);
    expectRefusal(name, ["nonsense"], takesNames ? /^there is no \w+ nonsense$/m : "too many arguments");
  });
});

/**
 * The options of each command: what their values must be, some valid values and their parsed form, and invalid ones.
 */
const options: Record<Name, Record<string, { must?: string; right?: object; wrong?: readonly string[] }>> = {
  bench: {
    svg: { must: "the name of a file", right: { "bench.svg": "bench.svg" } },
    quick: {},
    json: {},
    write: {},
  },
  overload: {
    seconds: { must: "a number of at least 1", right: { "1": 1, "2.5": 2.5 }, wrong: ["ten", "0.9", "-1"] },
    json: {},
  },
  faults: {
    minutes: { must: "a number above 0", right: { "0.1": 0.1 }, wrong: ["ten", "0", "-1"] },
    seed: { must: "a number above 0", right: { "1": 1 }, wrong: ["ten", "0"] },
    replicas: { must: "a number above 0", right: { "1": 1 }, wrong: ["ten", "0"] },
    rate: { must: "a number above 0", right: { "1": 1 }, wrong: ["ten", "0"] },
    only: {
      must: "parts of the names of faults, such as redis,suspended",
      right: {
        "replica killed": [{ name: "replica killed" }],
        "suspended,worker": [{ name: "replica suspended" }, { name: "worker killed" }, { name: "verifier suspended" }],
      },
      wrong: ["nonsense", "redis,nonsense"],
    },
    design: {
      must: new Intl.ListFormat("en", { type: "disjunction" }).format(brokenDesigns),
      right: { "no-wait": "no-wait" },
      wrong: ["sound"],
    },
    postgres: {
      must: "a folder with PostgreSQL binaries, or embedded",
      right: { embedded: "embedded" },
      wrong: ["/nowhere"],
    },
    json: {},
  },
  fuzz: {
    cases: { must: "a whole number above 0", right: { "1": 1 }, wrong: ["ten", "0", "1.5", "1e99"] },
    seed: { must: "a whole number above 0", right: { "1": 1 }, wrong: ["ten", "0", "1.5"] },
    path: { must: "numbers separated by colons", right: { "1:0:22": "1:0:22" }, wrong: ["a:b", "1:", ""] },
    json: {},
  },
  attack: { json: {} },
  soak: {
    minutes: { must: "a number of at least 0.1", right: { "0.1": 0.1 }, wrong: ["ten", "0.09"] },
    seed: { must: "a number of at least 0", right: { "0": 0, "7": 7 }, wrong: ["ten", "-1"] },
    leak: { must: "a number of at least 0", right: { "0": 0, "4096": 4_096 }, wrong: ["ten", "-1"] },
    buffers: {},
    faults: {},
    json: {},
  },
};

const each = names.flatMap((name) => Object.entries(options[name]).map(([option, of]) => ({ name, option, ...of })));

describe.each(each.filter(({ must }) => must !== undefined))("npm run $name -- --$option", (of) => {
  const { name, option, must, right = {}, wrong = [] } = of;

  it(`takes ${must}`, () => {
    for (const [text, value] of Object.entries(right)) {
      expect(commands[name].read([`--${option}`, text])).toMatchObject({ [option]: value });
    }
    for (const text of wrong) {
      expectRefusal(name, [`--${option}`, text], `--${option} must be ${must}, not ${text}\n`);
    }
  });

  it("refuses a missing value", () => {
    expectRefusal(name, [`--${option}`], new RegExp(`^option '--${option} <\\w+>' argument missing$`, "m"));
  });
});

describe.each(each.filter(({ must }) => must === undefined))("npm run $name -- --$option", ({ name, option }) => {
  it("is true if given", () => {
    expect(commands[name].read([`--${option}`])).toMatchObject({ [option]: true });
  });
});

/** Expects that the command prints the error and its usage to stderr, and exits with 2. */
function expectRefusal(name: Name, args: readonly string[], sentence: string | RegExp): void {
  const { code, stdout, stderr } = run(name, args);
  expect({ args, code, stdout }).toEqual({ args, code: 2, stdout: "" });
  const [, message = "", usage] = /^error: (.*?\n)\n(Usage: .*)$/s.exec(stderr) ?? [];
  expect(message).toMatch(sentence);
  expect(usage).toMatch(new RegExp(`^Usage: npm run ${name} -- `));
}

/** Parses options as a command does. Returns its output and exit code. */
function run(name: Name, args: readonly string[]) {
  const stdout = vi.spyOn(process.stdout, "write").mockReturnValue(true);
  const stderr = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  const exit = vi.spyOn(process, "exit").mockReturnValue(undefined as never);
  const spies = [stdout, stderr, exit];
  try {
    optionsOrExit<object>(commands[name].read, args);
    const output = (spy: typeof stdout) => spy.mock.calls.map(([text]) => text).join("");
    return { code: exit.mock.lastCall?.[0], stdout: output(stdout), stderr: output(stderr) };
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
}
