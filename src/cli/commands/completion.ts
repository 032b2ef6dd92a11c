/** `holdfast completion`: completion scripts for shells. */
import { Argument, type Command } from "commander";
import type { CommandNode } from "../command-tree.ts";
import { completionScript, type Shell, shells } from "../completion-scripts.ts";
import type { Output } from "../output.ts";

export function configureCompletion(command: Command, output: Output, tree: () => CommandNode): void {
  command
    .description("Prints a script that makes a shell complete commands and options.")
    .addArgument(new Argument("<shell>", "the shell").choices(shells))
    .addHelpText(
      "after",
      `
Examples:
  source <(holdfast completion bash)
  source <(holdfast completion zsh)
  holdfast completion fish > ~/.config/fish/completions/holdfast.fish`,
    )
    .action((shell: Shell) => output.raw(completionScript(shell, tree())));
}
