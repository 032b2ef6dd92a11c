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
    // It has said what is wrong already. Help and the version that were asked for are no failure.
    process.exitCode = error.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
  } else {
    const { exitCode, lines } = describeFailure(error);
    for (const line of lines) output.note(line);
    process.exitCode = exitCode;
  }
}
// A client of some database may have left a timer or a socket behind, which is no reason to go on.
process.exit();
