import { Command, CommanderError, Option } from "commander";
import type { Kind } from "./kinds.js";

/** One of the commands that try the service, as who runs it sees it: `npm run <name> -- <options>`. */
export interface CommandLine<Table extends Entries> {
  readonly name: string;
  readonly about: string;
  /** Its options, and what else can be said to it, by their names. */
  readonly entries: Table;
  /** When it ends with 1. */
  readonly failsIf: string;
}

/** What can be said to a command. */
export interface Entry<Value> {
  /** What it is if nothing is said. */
  readonly fallback: Value;
  addTo(program: Command, name: string): void;
}

export type Entries = Readonly<Record<string, Entry<unknown>>>;

/** What was said to a command, by the names of its table. */
export type Values<Table extends Entries> = { readonly [Name in keyof Table]: Table[Name]["fallback"] };

/** Something that a command can be told to keep to. */
export interface Part {
  readonly name: string;
  readonly title: string;
}

/** Reads what is said to a command. Wrong usage and the wish for help are told to the user, and thrown. */
export function createCommandLine<Table extends Entries>({ name, about, entries, failsIf }: CommandLine<Table>) {
  const program = new Command(`npm run ${name} --`)
    .description(about)
    .helpOption("--help", "what you read here")
    .showHelpAfterError()
    .exitOverride();
  for (const [name, entry] of Object.entries(entries)) {
    program.setOptionValue(name, entry.fallback);
    entry.addTo(program, name);
  }
  program.addHelpText("after", `\nThe exit code is 1 if ${failsIf}, 2 for wrong usage.`);

  return {
    read: (args: readonly string[]): Values<Table> => program.parse(args, { from: "user" }).opts<Values<Table>>(),
    /** For values that are right each by itself, but not together. */
    refuse: (sentence: string): never => program.error(`error: ${sentence}`),
  };
}

/** An option without a value. */
export function flag(about: string): Entry<boolean> {
  return { fallback: false, addTo: (program, name) => program.option(`--${name}`, about) };
}

/**
 * An option with a value.
 *
 * @param placeholder stands for the value in the usage
 * @param shown stands for what it is if nothing is said, where that is another each time
 */
export function option<Value>(placeholder: string, about: string, kind: Kind<Value>): Entry<Value | undefined>;
export function option<Value>(
  placeholder: string,
  about: string,
  kind: Kind<Value>,
  fallback: Value,
  shown?: string,
): Entry<Value>;
export function option<Value>(
  placeholder: string,
  about: string,
  { must, read }: Kind<Value>,
  fallback?: Value,
  shown?: string,
): Entry<Value | undefined> {
  return {
    fallback,
    addTo(program, name) {
      const readOrRefuse = (text: string) =>
        read(text) ?? program.error(`error: --${name} must be ${must}, not ${text}`);
      const made = new Option(`--${name} <${placeholder}>`, about).argParser(readOrRefuse);
      program.addOption(made.default(fallback, shown));
    },
  };
}

/** What all that is left to chance follows from. */
export function seed(about: string, kind: Kind<number>): Entry<number> {
  return option("N", about, kind, 1 + (Date.now() % 1_000_000_000), "another each time");
}

/** The parts that a command can be told to keep to, by their names. Read are those that were named: none, for all. */
export function parts<P extends Part>(one: string, all: readonly P[]): Entry<readonly P[]> {
  const width = Math.max(...all.map(({ name }) => name.length));
  const list = all.map(({ name, title }) => `  ${name.padEnd(width)}  ${title}`).join("\n");
  return {
    fallback: [],
    addTo(program, name) {
      program.argument(
        `[${name}...]`,
        `those wanted; all, if none is named:\n${list}`,
        (sought, before: readonly P[] = []) => {
          const found = all.find(({ name }) => name === sought);
          if (found === undefined) return program.error(`error: there is no ${one} ${sought} here`);
          const named = [...before, found];
          program.setOptionValue(name, named);
          return named;
        },
      );
    },
  };
}

/** The options of this process. If help was wanted or the usage is wrong, it ends, with 0 or 2: that has been told by then. */
export function optionsOrExit<Options>(
  readOptions: (args: readonly string[]) => Options,
  args: readonly string[] = process.argv.slice(2),
): Options {
  try {
    return readOptions(args);
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return process.exit(error.exitCode === 0 ? 0 : 2);
  }
}
