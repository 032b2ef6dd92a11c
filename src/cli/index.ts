export { allCommands, type CommandNode, type OptionNode, treeOf } from "./command-tree.ts";
export { exitCodes } from "./exit-codes.ts";
export { processOutput } from "./output.ts";
export { buildProgram } from "./program.ts";
