import { Command, CommanderError, Option } from "commander";
import type { Kind } from "./kinds.js";

/** The command line of one of the test and benchmark commands: `npm run <name> -- <options>`. */
export interface CommandLine<Table extends Entries> {
  readonly name: string;
  readonly about: string;
  /** Its options and arguments by name. */
  readonly entries: Table;
  /** The condition for exit code 1. */
  readonly failsIf: string;
}

/** An option or argument of a command. */
export interface Entry<Value> {
  /** The default value. */
  readonly fallback: Value;
  addTo(program: Command, name: string): void;
}

export type Entries = Readonly<Record<string, Entry<unknown>>>;

/** The values of the options and arguments by name. */
export type Values<Table extends Entries> = { readonly [Name in keyof Table]: Table[Name]["fallback"] };

/** A part of a command's work that can be selected by name. */
export interface Part {
  readonly name: string;
  readonly title: string;
}

/** Creates the parser of a command line. Wrong usage and --help are printed, and thrown as an error. */
export function createCommandLine<Table extends Entries>({ name, about, entries, failsIf }: CommandLine<Table>) {
  const program = new Command(`npm run ${name} --`)
    .description(about)
    .helpOption("--help", "print this help")
    .showHelpAfterError()
    .exitOverride();
  for (const [name, entry] of Object.entries(entries)) {
    program.setOptionValue(name, entry.fallback);
    entry.addTo(program, name);
  }
  program.addHelpText("after", `\nThe exit code is 1 if ${failsIf}, 2 for wrong usage.`);

  return {
    read: (args: readonly string[]): Values<Table> => program.parse(args, { from: "user" }).opts<Values<Table>>(),
    /** Rejects values that are valid alone but not in combination. */
    refuse: (message: string): never => program.error(`error: ${message}`),
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
 * @param shown stands for the default value in the usage, if the default varies
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
      const long = `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
      const parse = (text: string) => read(text) ?? program.error(`error: ${long} must be ${must}, not ${text}`);
      const commanderOption = new Option(`${long} <${placeholder}>`, about).argParser(parse);
      program.addOption(commanderOption.default(fallback, shown));
    },
  };
}

/** The seed of all random choices. */
export function seed(about: string, kind: Kind<number>): Entry<number> {
  return option("N", about, kind, 1 + (Date.now() % 1_000_000_000), "random");
}

/** Arguments that select parts by name. The value has the selected parts; an empty list means all. */
export function parts<P extends Part>(singular: string, all: readonly P[]): Entry<readonly P[]> {
  const width = Math.max(...all.map(({ name }) => name.length));
  const list = all.map(({ name, title }) => `  ${name.padEnd(width)}  ${title}`).join("\n");
  return {
    fallback: [],
    addTo(program, name) {
      program.argument(
        `[${name}...]`,
        `names to select; default all:\n${list}`,
        (wanted, previous: readonly P[] = []) => {
          const found = all.find(({ name }) => name === wanted);
          if (found === undefined) return program.error(`error: there is no ${singular} ${wanted}`);
          const selected = [...previous, found];
          program.setOptionValue(name, selected);
          return selected;
        },
      );
    },
  };
}

/** Reads the options of this process. After --help or wrong usage, which are already printed, it exits with 0 or 2. */
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
