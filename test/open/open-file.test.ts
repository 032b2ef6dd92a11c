/** The file store by URL. Its thread needs the compiled sources, which the other tests of openStore replace. */
import { createLocks } from "holdfast";
import { openStore } from "holdfast/open";
import { expect, test } from "vitest";
import { testFolder } from "../stores/file/folders.ts";

test("openStore: file:, with a path that is escaped", async () => {
  const folder = encodeURI(`${testFolder()}/with a space`);
  const fences: bigint[] = [];
  // The second store finds the record of the first.
  for (const url of [`file:${folder}`, `file://${folder}`]) {
    const locks = createLocks(await openStore(url));
    fences.push(await locks.mutex("opened").run(({ fence }) => fence));
    await locks.close();
  }
  expect(fences[1]).toBeGreaterThan(fences[0] ?? 0n);
});
