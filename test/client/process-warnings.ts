import { onTestFinished, vi } from "vitest";

/** What the process is warned of during this test, and not printed. */
export function collectProcessWarnings(): { message: string; code: unknown }[] {
  const told: { message: string; code: unknown }[] = [];
  const emitWarning = vi.spyOn(process, "emitWarning").mockImplementation((message, options) => {
    told.push({ message: String(message), code: (options as NodeJS.EmitWarningOptions).code });
  });
  onTestFinished(() => emitWarning.mockRestore());
  return told;
}
