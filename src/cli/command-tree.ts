/** The commands and their options as plain data, for completion and for the test of the documentation. */
import type { Command, Option } from "commander";

export interface OptionNode {
  readonly long: string;
  readonly short: string | undefined;
  readonly help: string;
  /** The kind of its value. */
  readonly takes: "nothing" | "path" | "word";
  readonly choices: readonly string[];
}

export interface CommandNode {
  /** The words of the command; empty for the program itself. */
  readonly path: string;
  readonly summary: string;
  readonly commands: readonly CommandNode[];
  readonly options: readonly OptionNode[];
  /** The allowed values of its argument. */
  readonly choices: readonly string[];
}

export function treeOf(command: Command, path = ""): CommandNode {
  return {
    path,
    summary: command.summary(),
    commands: command.commands.map((child) => treeOf(child, `${path} ${child.name()}`.trim())),
    options: [...command.options.map(optionNode), help],
    choices: command.registeredArguments.flatMap((argument) => argument.argChoices ?? []),
  };
}

/** The command and all commands below it. */
export function allCommands(node: CommandNode): readonly CommandNode[] {
  return [node, ...node.commands.flatMap(allCommands)];
}

const help: OptionNode = {
  long: "--help",
  short: "-h",
  help: "show help",
  takes: "nothing",
  choices: [],
};

function optionNode(option: Option): OptionNode {
  const takesValue = option.required || option.optional;
  return {
    long: option.long ?? "",
    short: option.short,
    help: option.description,
    takes: !takesValue ? "nothing" : /<path>/.test(option.flags) ? "path" : "word",
    choices: option.argChoices ?? [],
  };
}
