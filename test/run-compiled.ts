/** `tsx test/run-compiled.ts <program> [arguments]`: compiles the sources, and runs a program of the tests in its compiled form. */
import { compilePrograms, forkProgram } from "./programs.ts";

compilePrograms();
const [program = "", ...args] = process.argv.slice(2);
forkProgram(new URL(program, import.meta.url), args).on("exit", (code) => {
  process.exitCode = code ?? 1;
});
