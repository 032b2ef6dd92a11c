import { createLocks } from "holdfast";
import { expect, test } from "vitest";

test("close rejects a bad graceMs as every other call does, and can be called again", async () => {
  const locks = createLocks();
  const closing = locks.close({ graceMs: -1 });
  await expect(closing).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  await locks.mutex("report").run(() => "still open");
  await locks.close();
  await expect(locks.mutex("report").tryAcquire()).rejects.toMatchObject({ code: "CLOSED" });
});
