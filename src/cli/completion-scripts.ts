/** Completion scripts for shells, generated from the commands. */
import { allCommands, type CommandNode, type OptionNode } from "./command-tree.ts";

export const shells = ["bash", "zsh", "fish"] as const;

export type Shell = (typeof shells)[number];

export function completionScript(shell: Shell, tree: CommandNode): string {
  return { bash, zsh, fish }[shell](tree);
}

/** The words that can follow a command: its commands, the values of its argument, and its options. */
function wordsAfter(node: CommandNode): readonly string[] {
  const options = node.options.flatMap(({ long, short }) => (short === undefined ? [long] : [long, short]));
  return [...node.commands.map(lastWord), ...node.choices, ...options];
}

function lastWord({ path }: CommandNode): string {
  return path.slice(path.lastIndexOf(" ") + 1);
}

/** Branches of a `case` that walk the tree by the words typed so far. */
function descent(tree: CommandNode, variable: string): string {
  return allCommands(tree)
    .flatMap((node) => node.commands.map((child) => ({ node, child })))
    .map(({ node, child }) => `      "${node.path}/${lastWord(child)}") ${variable}="${child.path}" ;;`)
    .join("\n");
}

/** Branches of a `case` for the values of options. */
function values(tree: CommandNode, write: (option: OptionNode) => string): string {
  return allCommands(tree)
    .flatMap(({ path, options }) =>
      options
        .filter(({ takes }) => takes !== "nothing")
        .map((option) => `    "${path}/${option.long}") ${write(option)} ;;`),
    )
    .join("\n");
}

function bash(tree: CommandNode): string {
  return `# Completion of holdfast for bash. In ~/.bashrc: source <(holdfast completion bash)
${bashFunction(tree)}`;
}

function bashFunction(tree: CommandNode): string {
  const candidates = allCommands(tree)
    .map((node) => `    "${node.path}") words="${wordsAfter(node).join(" ")}" ;;`)
    .join("\n");
  return `_holdfast() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" path="" words="" index
  COMPREPLY=()
  for ((index = 1; index < COMP_CWORD; index++)); do
    if [[ "\${COMP_WORDS[index]}" == "--" ]]; then
      COMPREPLY=($(compgen -c -f -- "$current"))
      return
    fi
    case "$path/\${COMP_WORDS[index]}" in
${descent(tree, "path")}
    esac
  done
  case "$path/$previous" in
${values(tree, bashValue)}
  esac
  case "$path" in
${candidates}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _holdfast holdfast
`;
}

function bashValue({ takes, choices }: OptionNode): string {
  if (choices.length > 0) return `COMPREPLY=($(compgen -W "${choices.join(" ")}" -- "$current")); return`;
  return takes === "path" ? 'COMPREPLY=($(compgen -f -- "$current")); return' : "return";
}

/** zsh runs the completion of bash, with its own emulation of it. */
function zsh(tree: CommandNode): string {
  return `# Completion of holdfast for zsh. In ~/.zshrc, after compinit: source <(holdfast completion zsh)
autoload -U +X bashcompinit && bashcompinit
${bashFunction(tree)}`;
}

function fish(tree: CommandNode): string {
  const lines = allCommands(tree).flatMap((node) => {
    const here = fishCondition(node);
    const commands = node.commands.map(
      (child) => `complete -c holdfast -f ${here} -a ${lastWord(child)} -d ${quoted(child.summary)}`,
    );
    const choices = node.choices.map((choice) => `complete -c holdfast -f ${here} -a ${choice}`);
    const options = node.options.map((option) => {
      const short = option.short === undefined ? "" : ` -s ${option.short.slice(1)}`;
      const value = { nothing: "-f", path: "-r -F", word: "-x" }[option.takes];
      const words = option.choices.length === 0 ? "" : ` -a ${quoted(option.choices.join(" "))}`;
      return `complete -c holdfast ${here} -l ${option.long.slice(2)}${short} ${value}${words} -d ${quoted(option.help)}`;
    });
    return [...commands, ...choices, ...options];
  });
  return `# Completion of holdfast for fish: holdfast completion fish > ~/.config/fish/completions/holdfast.fish
${lines.join("\n")}
`;
}

function fishCondition({ path, commands }: CommandNode): string {
  if (path === "") return "-n __fish_use_subcommand";
  const seen = path.split(" ").map((word) => `__fish_seen_subcommand_from ${word}`);
  const not =
    commands.length === 0 ? [] : [`not __fish_seen_subcommand_from ${commands.map(lastWord).join(" ")}`];
  return `-n ${quoted([...seen, ...not].join("; and "))}`;
}

/** In single quotes of a shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
