/** The thread of a folder: stores share it, it ends with the last of them, and another one replaces a dead one. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { FolderClient } from "../../../src/stores/file/client.ts";
import { fileDriver } from "../../../src/stores/file/driver.ts";
import { newExitGuard } from "../../../src/stores/file/exit-guard.ts";
import { compiled, compiledForm } from "../../programs.ts";
import { testFolder } from "./folders.ts";
import { skipped } from "./mounts.ts";

/** The threads that get messages from now on. */
function threadsInUse(): Set<Worker> {
  const threads = new Set<Worker>();
  const post = Worker.prototype.postMessage;
  const spy = vi.spyOn(Worker.prototype, "postMessage").mockImplementation(function (this: Worker, message) {
    threads.add(this);
    post.call(this, message);
  });
  onTestFinished(() => spy.mockRestore());
  return threads;
}

describe("file: the thread of a folder", () => {
  test("rejects pending requests when it dies while its last store closes", async () => {
    const threads = threadsInUse();
    const client = FolderClient.of(testFolder());
    await client.ask({ verb: "read", keys: [] });
    // It dies before it reads the request: in a transaction, `lmdb` would wait forever.
    vi.mocked(Worker.prototype.postMessage).mockImplementation(() => {});
    const asked = client.ask({ verb: "read", keys: [] }).then(
      () => "answered",
      ({ code }) => code,
    );
    const left = client.leave();
    await [...threads][0]?.terminate();
    await left;
    expect(await asked).toBe("STORE_UNAVAILABLE");
  });

  test("is shared by all stores of a process, and ends with the last", async () => {
    const threads = threadsInUse();
    const folder = testFolder();
    const [first, second] = [createLocks(fileStore(folder)), createLocks(fileStore(folder))];
    const lease = await first.mutex("key").acquire();
    expect(await second.mutex("key").tryAcquire()).toBeNull();
    expect(threads.size).toBe(1);
    await first.close();
    expect((await second.mutex("key").acquire()).fence).toBeGreaterThan(lease.fence);
    const [thread] = threads;
    const ended = vi.fn();
    thread!.once("exit", ended);
    await second.close();
    expect(ended).toHaveBeenCalledOnce();
    expect(threads.size).toBe(1);
    expect(readdirSync(join(folder, "wake"))).toEqual([]);
  });

  test("is the same for every path that leads to the folder", async () => {
    const threads = threadsInUse();
    const folder = testFolder();
    const link = join(testFolder(), "link");
    symlinkSync(folder, link);
    const [first, second] = [createLocks(fileStore(folder)), createLocks(fileStore(link))];
    const lease = await first.mutex("key").acquire();
    expect(await second.mutex("key").tryAcquire()).toBeNull();
    expect(threads.size).toBe(1);
    await lease.release();
    await Promise.all([first.close(), second.close()]);
  });

  const isLinux = process.platform === "linux";
  if (!isLinux) skipped("file: the test of a second thread", "only Linux tells that there is one");
  test.skipIf(!isLinux)("is the only one of its process, or says so", async () => {
    const folder = testFolder();
    const locks = createLocks(fileStore(folder));
    await locks.mutex("key").run(() => {});
    // As another copy of Holdfast would start it, or a thread of the application.
    const program = compiledForm(new URL("../../../src/stores/file/thread.ts", import.meta.url).pathname);
    const other = new Worker(program, { workerData: { folder, guard: newExitGuard() } });
    const asked = { number: 1, request: { verb: "read", keys: [] } };
    other.postMessage(asked);
    const [refused] = await once(other, "message");
    expect(refused).toMatchObject([{ failure: { code: "OPEN_TWICE" } }]);
    await locks.close();
    other.postMessage(asked);
    const [served] = await once(other, "message");
    expect(served).toMatchObject([{ reply: { rows: [] } }]);
    other.postMessage("close");
    await once(other, "exit");
  });

  test("a store that is opened while the last one is being closed waits for that", async () => {
    const folder = testFolder();
    for (let round = 0; round < 5; round++) {
      const before = createLocks(fileStore(folder));
      await before.mutex("key").run(() => {});
      const closing = before.close();
      const after = createLocks(fileStore(folder));
      expect(await after.mutex("key").tryAcquire()).not.toBeNull();
      await Promise.all([closing, after.close()]);
    }
  });

  test("when it has died, the next call starts another one", async () => {
    const threads = threadsInUse();
    const locks = createLocks(fileStore(testFolder()));
    const lease = await locks.mutex("key", { ttlMs: 60_000 }).acquire();
    await [...threads].at(-1)!.terminate();
    expect(await locks.mutex("key").tryAcquire()).toBeNull();
    expect(await lease.release()).toBe(true);
    expect((await locks.mutex("key").acquire()).fence).toBeGreaterThan(lease.fence);
    expect(threads.size).toBe(2);
    await locks.close();
  });

  test("is not started by anything that comes after the end of the store", async () => {
    const threads = threadsInUse();
    const driver = fileDriver(testFolder());
    const end = await driver.listen?.("owner", () => {});
    await driver.close?.();
    const before = threads.size;
    end?.();
    await expect(driver.read(["key"])).rejects.toMatchObject({ code: "CLOSED" });
    expect(threads.size).toBe(before);
  });

  test("does not keep a program from ending that has not closed its store", () => {
    const folder = testFolder();
    const program = compiled(new URL("./careless-process.ts", import.meta.url));
    const said = execFileSync(process.execPath, [program, folder], {
      encoding: "utf8",
      timeout: 15_000,
    });
    expect(said).toBe("held\n");
    expect(existsSync(join(folder, "locks.mdb"))).toBe(true);
  });
});
