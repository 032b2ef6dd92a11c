/** `npm run check`: everything that is fast. Types, lint and format, the protocol, and the test that keeps the tree tidy. */
import { checkProtocol, checkStyle, checkTypes, runVitest } from "./checks.js";
import { checkNode, install, step } from "./steps.js";

checkNode();
if (!(await install())) process.exit(1);

// All of them run, so that one look shows everything there is to mend.
const passed = [
  await checkTypes(),
  await checkStyle(),
  await checkProtocol(),
  await step("tidy (vitest)", () => runVitest(["test/tidy.test.ts"])),
];
process.exit(passed.every(Boolean) ? 0 : 1);
