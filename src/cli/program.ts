/** The program and its commands. */
import { Command } from "commander";
import { type CommandNode, treeOf } from "./command-tree.ts";
import type { Output } from "./output.ts";
import { version } from "./version.ts";

interface Entry {
  readonly name: string;
  readonly summary: string;
  /** Commands are loaded on demand: loading the server takes longer than listing locks. */
  load(): Promise<(command: Command, output: Output, tree: () => CommandNode) => void>;
}

const entries: readonly Entry[] = [
  {
    name: "run",
    summary: "run a command while holding a lock",
    load: async () => (await import("./commands/run.ts")).configureRun,
  },
  {
    name: "serve",
    summary: "run a lock server over any store",
    load: async () => (await import("./commands/serve.ts")).configureServe,
  },
  {
    name: "ls",
    summary: "list the keys that are held or waited for",
    load: async () => (await import("./commands/ls.ts")).configureLs,
  },
  {
    name: "inspect",
    summary: "show the holders and the waiters of a key",
    load: async () => (await import("./commands/inspect.ts")).configureInspect,
  },
  {
    name: "release",
    summary: "end a claim by force",
    load: async () => (await import("./commands/release.ts")).configureRelease,
  },
  {
    name: "watch",
    summary: "show changes of keys as they happen",
    load: async () => (await import("./commands/watch.ts")).configureWatch,
  },
  {
    name: "doctor",
    summary: "check a store or a server",
    load: async () => (await import("./commands/doctor.ts")).configureDoctor,
  },
  {
    name: "token",
    summary: "make tokens for the clients of a server",
    load: async () => (await import("./commands/token.ts")).configureToken,
  },
  {
    name: "completion",
    summary: "print a completion script for a shell",
    load: async () => (await import("./commands/completion.ts")).configureCompletion,
  },
];

/** Builds the program, and loads the commands that the arguments name, or all of them. */
export async function buildProgram(output: Output, args?: readonly string[]): Promise<Command> {
  const program = new Command("holdfast")
    .description("Distributed locks with leases, fences and fair queues, over the stores you already run.")
    .version(version, "-V, --version", "show the version")
    .helpOption("-h, --help", "show help")
    .helpCommand("help [command]", "show help of a command")
    .showSuggestionAfterError()
    .configureOutput({
      outputError: (text, write) => write(text.replace(/^error:/, "holdfast:").replace("\n(Did", " (Did")),
    })
    .exitOverride()
    .addHelpText(
      "after",
      `
Examples:
  holdfast serve
  holdfast run nightly-report -- ./report.sh
  holdfast ls

The locks are in a store: --store URL or HOLDFAST_STORE names a store, --server HOST or HOLDFAST_SERVER names a server.
The default is the server at 127.0.0.1:7420.`,
    );
  const wanted = args === undefined || args.includes("completion") ? undefined : args;
  for (const { name, summary, load } of entries) {
    const command = program.command(name).summary(summary);
    // A command that is not loaded only appears in the list.
    if (wanted === undefined || wanted.includes(name)) (await load())(command, output, () => treeOf(program));
    adviseAfterErrors(command, `holdfast ${name}`);
  }
  const names = entries.map(({ name }) => name).join(", ");
  return program.showHelpAfterError(`  The commands are ${names}. Run holdfast help for more.`);
}

/** Adds advice to the errors of a command. */
function adviseAfterErrors(command: Command, path: string): void {
  command.showHelpAfterError(`  Write: ${path} ${command.usage()}\n  Run ${path} --help for more.`);
  for (const child of command.commands) adviseAfterErrors(child, `${path} ${child.name()}`);
}
