/** Folders for tests, which are gone when the tests are. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileStore } from "holdfast/file";
import { afterAll, onTestFinished, type TestContext } from "vitest";
import { guard } from "../../engines/guard.ts";

/** A new folder. It is removed when this process has ended, if the caller has not removed it. */
export function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-file-"));
  guard(undefined, folder);
  return folder;
}

/** A new folder for the present test. A concurrent test passes its context. */
export function testFolder(context: Pick<TestContext, "onTestFinished"> = { onTestFinished }): string {
  const folder = newFolder();
  context.onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A folder for all tests of a file. Its thread runs as long as they do. */
export function keptFolder(): { readonly folder: string; start(): Promise<unknown> } {
  const folder = newFolder();
  const keeper = fileStore(folder);
  afterAll(async () => {
    await keeper.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return { folder, start: () => keeper.look({ key: "any", maxClaims: 0 }) };
}
