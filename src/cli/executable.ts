/** Finds out whether a command can be run, before anybody waits for a lock in order to run it. */
import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import { exitCodes } from "./exit-codes.ts";
import { CliError } from "./failure.ts";

/**
 * The shell that starts a command with this environment. Shells such as dash drop variables whose names they cannot write, such as "a.b";
 * bash passes them on. Given to env(1) instead, their values would stand on a command line, which other users can read.
 */
export function shellFor(env: NodeJS.ProcessEnv): readonly [program: string, ...options: string[]] {
  const dropped = Object.keys(env).filter((name) => !/^[A-Za-z_]\w*$/.test(name));
  if (dropped.length === 0) return ["/bin/sh"];
  // Without -p, bash runs what BASH_ENV names, and defines the functions that stand in the environment.
  if (lookFor("bash").includes("executable")) return ["bash", "-p"];
  const names = dropped.map((name) => JSON.stringify(name)).join(", ");
  throw new CliError(
    exitCodes.notExecutable,
    `/bin/sh drops environment variables with these names: ${names}.`,
    "Install bash, or unset the variables.",
  );
}

/** Throws what `holdfast run` ends with: 127 where there is no such command, 126 where it cannot be executed. */
export function checkExecutable(command: string): void {
  const found = lookFor(command);
  if (found.includes("executable")) return;
  if (command !== "" && found.includes("plain")) {
    throw new CliError(
      exitCodes.notExecutable,
      `the command ${JSON.stringify(command)} is not executable.`,
      "Make it executable with chmod +x, or name its interpreter.",
    );
  }
  throw new CliError(
    exitCodes.notFound,
    `the command ${JSON.stringify(command)} was not found.`,
    "Check its name and PATH.",
  );
}

function lookFor(command: string): readonly ReturnType<typeof look>[] {
  const path = process.env["PATH"] ?? "/usr/local/bin:/usr/bin:/bin";
  const candidates = command.includes("/")
    ? [command]
    : path.split(delimiter).map((folder) => join(folder || ".", command));
  return candidates.map(look);
}

function look(file: string): "executable" | "plain" | "missing" {
  try {
    const isFolder = statSync(file).isDirectory();
    accessSync(file, constants.X_OK);
    return isFolder ? "plain" : "executable";
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EACCES" ? "plain" : "missing";
  }
}
