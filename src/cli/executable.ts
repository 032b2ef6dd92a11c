/** Checks whether a command can run, before waiting for its lock. */
import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import { exitCodes } from "./exit-codes.ts";
import { CliError } from "./failure.ts";

/**
 * The shell that starts a command with this environment. Shells such as dash drop variables with names such as "a.b"; bash passes
 * them on. env(1) would need the values on its command line, which other users can read.
 */
export function shellFor(env: NodeJS.ProcessEnv): readonly [program: string, ...options: string[]] {
  const dropped = Object.keys(env).filter((name) => !/^[A-Za-z_]\w*$/.test(name));
  if (dropped.length === 0) return ["/bin/sh"];
  // Without -p, bash runs the file in BASH_ENV and defines functions from the environment.
  if (lookFor("bash").includes("executable")) return ["bash", "-p"];
  const names = dropped.map((name) => JSON.stringify(name)).join(", ");
  throw new CliError(
    exitCodes.notExecutable,
    `/bin/sh drops environment variables with these names: ${names}.`,
    "Install bash, or unset the variables.",
  );
}

/** Throws with the exit code of `holdfast run`: 127 for a missing command, 126 for one that is not executable. */
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
