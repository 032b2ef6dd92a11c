/** Builds to dist/ when a source is newer than what is there. Tests that need the built package call this. */
import { build, checkNode } from "./steps.js";

checkNode();
process.exit((await build()) ? 0 : 1);
