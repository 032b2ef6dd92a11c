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
    // Commander has printed an error or help. Requested help is not a failure.
    process.exitCode = error.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
    if (error.code === "commander.help" && error.exitCode !== 0)
      output.note("\nholdfast: a command is missing or unknown. Write one of the commands above.");
  } else {
    const { exitCode, lines } = describeFailure(error);
    for (const line of lines) output.note(line);
    process.exitCode = exitCode;
  }
}
// Database clients may leave timers and sockets open.
process.exit();
