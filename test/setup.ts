/** Runs once, before all test files. */
import { compilePrograms } from "./programs.ts";

export function setup(): void {
  compilePrograms();
}
