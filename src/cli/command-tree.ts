/** The commands and their options as plain data, for completion and for the test that compares documentation with them. */
import type { Command, Option } from "commander";

export interface OptionNode {
  readonly long: string;
  readonly short: string | undefined;
  readonly help: string;
  /** What comes after it: nothing, a path, or some other word. */
  readonly takes: "nothing" | "path" | "word";
  readonly choices: readonly string[];
}

export interface CommandNode {
  /** Its words with blanks between them; empty for the program itself. */
  readonly path: string;
  readonly summary: string;
  readonly commands: readonly CommandNode[];
  readonly options: readonly OptionNode[];
  /** Words that its argument can be, if they are known. */
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

/** Every command below, itself included. */
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
