/** Finds out whether a command can be run, before anybody waits for a lock in order to run it. */
import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import { exitCodes } from "./exit-codes.ts";
import { CliError } from "./failure.ts";

/** Throws what `holdfast run` ends with: 127 where there is no such command, 126 where it cannot be executed. */
export function checkExecutable(
  command: string,
  path = process.env["PATH"] ?? "/usr/local/bin:/usr/bin:/bin",
): void {
  const candidates = command.includes("/")
    ? [command]
    : path.split(delimiter).map((folder) => join(folder || ".", command));
  const found = candidates.map(look);
  if (found.includes("executable")) return;
  if (command !== "" && found.includes("plain")) {
    throw new CliError(exitCodes.notExecutable, `the command ${JSON.stringify(command)} cannot be executed.`);
  }
  throw new CliError(exitCodes.notFound, `the command ${JSON.stringify(command)} was not found.`);
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
