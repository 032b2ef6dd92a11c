/** The commands, and what all of them share. */
import { Command } from "commander";
import { type CommandNode, treeOf } from "./command-tree.ts";
import type { Output } from "./output.ts";
import { version } from "./version.ts";

interface Entry {
  readonly name: string;
  readonly summary: string;
  /** Commands are loaded when they are needed: that of the server takes longer than listing some locks. */
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
    summary: "show who holds a key and who waits for it",
    load: async () => (await import("./commands/inspect.ts")).configureInspect,
  },
  {
    name: "release",
    summary: "end somebody's claim by force",
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

/** The program with those of its commands whole that the arguments name, or all of them. */
export async function buildProgram(output: Output, args?: readonly string[]): Promise<Command> {
  const program = new Command("holdfast")
    .description("Distributed locks with leases, fences and fair queues, over the stores you already run.")
    .version(version, "-V, --version", "show the version")
    .helpOption("-h, --help", "show help")
    .helpCommand("help [command]", "show help of a command")
    .showSuggestionAfterError()
    .showHelpAfterError("Run holdfast help, or holdfast <command> --help, for more.")
    .exitOverride()
    .addHelpText(
      "after",
      `
Examples:
  holdfast serve
  holdfast run nightly-report -- ./report.sh
  holdfast ls

Where the locks are: --store URL or HOLDFAST_STORE for a store, --server HOST or HOLDFAST_SERVER for a server;
without any of them, the server at 127.0.0.1:7420.`,
    );
  const wanted = args === undefined || args.includes("completion") ? undefined : args;
  for (const { name, summary, load } of entries) {
    const command = program.command(name).summary(summary);
    // Until it is loaded it has nothing but its place in the list.
    if (wanted === undefined || wanted.includes(name)) (await load())(command, output, () => treeOf(program));
  }
  return program;
}
