import { Argument, Command, type Option } from "commander";

/** `latchkey completion`. It prints a script for the commands and flags of this program. */
export function completionCommand(): Command {
  return new Command("completion")
    .description("print a script that completes commands and flags in a shell")
    .addArgument(new Argument("<shell>", "the shell").choices(Object.keys(scripts)))
    .exitOverride()
    .action((shell: Shell, _flags: object, command: Command) => {
      const program = command.parent;
      if (program) process.stdout.write(scripts[shell](program));
    });
}

type Shell = "bash" | "zsh";

const scripts: Record<Shell, (program: Command) => string> = {
  bash: bashScript,
  // zsh can run completions that are written for bash.
  zsh: (program) => `autoload -U +X compinit && compinit -u
autoload -U +X bashcompinit && bashcompinit
${bashScript(program)}`,
};

/**
 * A completion function. It follows the words before the cursor to the command that they name, and offers the commands
 * and flags of that command, or the values of a flag.
 */
function bashScript(program: Command): string {
  const commands = commandsOf(program, program.name());
  return `_latchkey_files() {
  local IFS=$'\\n'
  compopt -o filenames 2> /dev/null
  COMPREPLY=($(compgen -f -- "$current"))
}
_latchkey() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]} command=${program.name()} i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command \${COMP_WORDS[i]}" in
      ${patterns(commands.map(({ path }) => path))}) command="$command \${COMP_WORDS[i]}" ;;
    esac
  done
  COMPREPLY=()
  case "$command $previous" in
${commands.flatMap(({ path, command }) => command.options.flatMap((option) => flagCases(path, option))).join("\n")}
  esac
  case "$command" in
${commands.map(({ path, command }) => `    "${path}") ${offer(wordsOf(command), takesFile(command.registeredArguments))} ;;`).join("\n")}
  esac
}
complete -F _latchkey ${program.name()}
`;
}

interface NamedCommand {
  /** Its name with the names of its parents, such as `latchkey key create`. */
  readonly path: string;
  readonly command: Command;
}

function commandsOf(command: Command, path: string): NamedCommand[] {
  const below = command.commands.flatMap((child) => commandsOf(child, `${path} ${child.name()}`));
  return [{ path, command }, ...below];
}

function wordsOf({ commands, options, registeredArguments }: Command): string[] {
  const names = commands.map((command) => command.name());
  const values = registeredArguments.flatMap(({ argChoices = [] }) => argChoices);
  return [...names, ...values, ...options.map(({ long }) => long ?? ""), "--help"];
}

/** After a flag with a value, only its values are offered, or nothing. */
function flagCases(path: string, option: Option): string[] {
  if (!option.required) return [];
  return [
    `    "${path} ${option.long}") ${offer(option.argChoices ?? [], option.flags.endsWith("<file>"))}; return ;;`,
  ];
}

function takesFile(args: readonly Argument[]): boolean {
  return args.some((argument) => argument.name() === "file");
}

/** The commands that offer these words, which need no quotes, or files. */
function offer(words: readonly string[], files: boolean): string {
  const offerWords = words.length > 0 ? `COMPREPLY=($(compgen -W "${words.join(" ")}" -- "$current"))` : ":";
  return files ? `if [[ $current == -* ]]; then ${offerWords}; else _latchkey_files; fi` : offerWords;
}

function patterns(texts: readonly string[]): string {
  return texts.map((text) => `"${text}"`).join(" | ");
}
