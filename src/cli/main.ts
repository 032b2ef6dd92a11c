#!/usr/bin/env node
/** The `holdfast` command. */
import { CommanderError } from "commander";
import { exitCodes } from "./exit-codes.ts";
import { describeFailure } from "./failure.ts";
import { processOutput } from "./output.ts";
import { buildProgram } from "./program.ts";

const output = processOutput();
try {
  const program = await buildProgram(output, process.argv.slice(2));
  await program.parseAsync(process.argv);
} catch (error) {
  if (error instanceof CommanderError) {
    // It has printed an error already, or help. Help and the version are no failure if they were asked for.
    process.exitCode = error.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
    if (error.code === "commander.help" && error.exitCode !== 0)
      output.note("\nholdfast: a command is missing or unknown. Write one of the commands above.");
  } else {
    const { exitCode, lines } = describeFailure(error);
    for (const line of lines) output.note(line);
    process.exitCode = exitCode;
  }
}
// A client of some database may have left a timer or a socket behind, which is no reason to go on.
process.exit();
