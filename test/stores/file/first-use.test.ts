/** The first call reports an unusable folder, and leaves nothing in it. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  closeSync,
  cpSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { createLocks } from "holdfast";
import { type FileStoreOptions, fileStore } from "holdfast/file";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { newExitGuard } from "../../../src/stores/file/exit-guard.ts";
import { unprivileged, until } from "../../engines/engine.ts";
import { compiledForm, forkProgram } from "../../programs.ts";
import { testDamagedRecords } from "../damaged-records.ts";
import { newFolder, testFolder } from "./folders.ts";
import { canMount, mountedFolder, skipped } from "./mounts.ts";
import { changeState, changeText, databasePath, OTHER_FORMAT, textOf, withFile } from "./raw-files.ts";

/** Whether a user without rights can read the sources. */
async function isReadableByAll(): Promise<boolean> {
  try {
    await withoutRights(async () => closeSync(openSync(fileURLToPath(import.meta.url), "r")));
    return true;
  } catch {
    skipped("file: the test of a folder without rights", "only root can read the sources");
    return false;
  }
}

/** Root has all rights, so the process becomes another user meanwhile, with all its threads. */
async function withoutRights<T>(work: () => Promise<T>): Promise<T> {
  const { uid } = unprivileged();
  if (uid !== undefined) process.seteuid?.(uid);
  try {
    return await work();
  } finally {
    if (uid !== undefined) process.seteuid?.(0);
  }
}

async function firstError(folder: string): Promise<unknown> {
  const locks = createLocks(fileStore(folder), { requestTimeoutMs: 10_000 });
  const error = await locks
    .mutex("key")
    .tryAcquire()
    .catch((caught: unknown) => caught);
  await locks.close();
  return error;
}

const readable = await isReadableByAll();

describe("file: first use", () => {
  test.each([
    ["folder", "", {}],
    ["folder", undefined, {}],
    ["folder", "a\0b", {}],
    ["maxWaiters", "folder", { maxWaiters: -1 }],
    ["requestTimeoutMs", "folder", { requestTimeoutMs: 1 }],
    ["keepIdleMs", "folder", { keepIdleMs: 5_000 }],
    ["maxBytes", "folder", { maxBytes: 1 }],
  ])("%s is checked: %j with %j", (name, folder, options) => {
    const create = () => fileStore(folder as string, options as FileStoreOptions);
    expect(create).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
    expect(create).toThrow(name);
  });

  test("makes the folder with the first call, also below others that are missing", async () => {
    const folder = join(testFolder(), "a", "b");
    const store = fileStore(folder);
    expect(existsSync(folder)).toBe(false);
    const locks = createLocks(store);
    expect(await locks.mutex("key").tryAcquire()).not.toBeNull();
    await locks.close();
    expect(readdirSync(folder)).toContain("locks.mdb");
  });

  test("a store that was never used leaves nothing", async () => {
    const folder = join(testFolder(), "unused");
    await fileStore(folder).close();
    expect(existsSync(folder)).toBe(false);
  });

  test("a file in place of the folder is reported", async () => {
    const path = join(testFolder(), "file");
    writeFileSync(path, "mine");
    expect(await firstError(path)).toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("EEXIST"),
    });
    expect(await firstError(join(path, "below"))).toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("ENOTDIR"),
    });
    expect(readFileSync(path, "utf8")).toBe("mine");
  });

  // mkdir of Node never returns from there.
  test.runIf(process.platform === "linux")("a path where no folder can be made is reported", async () => {
    expect(await firstError("/proc/holdfast/locks")).toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("No folder can be made there."),
    });
  });

  test.runIf(readable)("a folder that this user may not write to is UNAUTHORIZED", async () => {
    const folder = testFolder();
    chmodSync(folder, 0o555);
    onTestFinished(() => chmodSync(folder, 0o700));
    expect(await withoutRights(() => firstError(folder))).toMatchObject({
      code: "UNAUTHORIZED",
      message: expect.stringContaining("EACCES"),
    });
    expect(readdirSync(folder)).toEqual([]);
  });

  const skipsReadOnly = !canMount("file: the test of a read-only file system");
  test.skipIf(skipsReadOnly)(
    "a read-only file system is UNAUTHORIZED, and works once it is not",
    async () => {
      const folder = mountedFolder("ro,size=4m");
      const locks = createLocks(fileStore(folder));
      await expect(locks.mutex("key").tryAcquire()).rejects.toMatchObject({
        code: "UNAUTHORIZED",
        message: expect.stringContaining("read-only"),
      });
      execFileSync("mount", ["-o", "remount,rw", folder]);
      expect(await locks.mutex("key").tryAcquire()).not.toBeNull();
      await locks.close();
    },
  );

  test("a process that was killed while it opened the folder does not keep others from it", async () => {
    const folder = testFolder();
    const child = forkProgram(new URL("../../platform/lock-process.ts", import.meta.url), [
      join(folder, "opening"),
      "once",
    ]);
    onTestFinished(() => void child.kill("SIGKILL"));
    await once(child, "message");
    expect(await firstError(folder)).toMatchObject({ code: "STORE_UNAVAILABLE" });
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
    const locks = createLocks(fileStore(folder));
    expect(await locks.mutex("key").tryAcquire()).not.toBeNull();
    await locks.close();
  });

  test("a file that is not of LMDB is reported and left as it is", async () => {
    const folder = testFolder();
    writeFileSync(databasePath(folder), "x".repeat(20_000));
    expect(await firstError(folder)).toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("not an LMDB file"),
    });
    expect(readFileSync(databasePath(folder), "utf8")).toBe("x".repeat(20_000));
  });

  test("an LMDB file of another program is reported and left as it is", async () => {
    const folder = testFolder();
    await withFile(folder, (root) => root.putSync(Buffer.from("theirs"), Buffer.from("data")));
    expect(await firstError(folder)).toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("content of another program"),
    });
    expect(await withFile(folder, (root) => [...root.getKeys()].map(String))).toEqual(["theirs"]);
  });

  test("a folder of another format is reported, also when it changes while it is in use", async () => {
    const folder = testFolder();
    const locks = createLocks(fileStore(folder));
    expect(await locks.mutex("key").tryAcquire()).not.toBeNull();
    await changeState(folder, { format: OTHER_FORMAT });
    const expected = { code: "STORE_FAILURE", message: expect.stringContaining("another format") };
    await expect(locks.mutex("other").tryAcquire()).rejects.toMatchObject(expected);
    await locks.close();
    expect(await firstError(folder)).toMatchObject(expected);
  });

  describe("records", () => {
    const folder = newFolder();
    afterAll(() => rmSync(folder, { recursive: true, force: true }));

    testDamagedRecords({
      async put(key, text) {
        const locks = createLocks(fileStore(folder));
        await locks.mutex(key).run(() => {});
        await locks.close();
        await changeText(folder, key, text);
      },
      textOf: (key) => textOf(folder, key),
      open: () => fileStore(folder),
    });
  });

  test("a missing lmdb package is reported by the thread", async () => {
    const folder = testFolder();
    const source = compiledForm(new URL("../../../src/", import.meta.url).pathname);
    for (const part of ["platform", "stores/file"]) {
      cpSync(join(source, part), join(folder, part), { recursive: true });
    }
    writeFileSync(join(folder, "package.json"), '{"type":"module"}');
    const workerData = { folder: join(folder, "data"), guard: newExitGuard() };
    const thread = new Worker(join(folder, "stores/file/thread.js"), { workerData });
    thread.postMessage({ number: 1, request: { verb: "read", keys: [] } });
    const [answers] = await once(thread, "message");
    expect(answers).toMatchObject([{ number: 1, failure: { code: "NO_LMDB" } }]);
    await thread.terminate();
  });

  // A flush of a new folder's name may fail. Without the name, a loss of power would lose the folder with all that was confirmed.
  test.each(["a/b/c", "a/b", "a", "."])(
    "a new folder is not used before the names in %j are on the disk",
    async (failing) => {
      const root = testFolder();
      const program = compiledForm(new URL("../../../src/stores/file/thread.ts", import.meta.url).pathname);
      const thread = new Worker(program, {
        workerData: { folder: join(root, "a/b/c"), guard: newExitGuard(), failing: join(root, failing) },
        execArgv: ["--import", join(import.meta.dirname, "fail-sync.mjs")],
      });
      const outcomes: unknown[] = [];
      for (const number of [1, 2, 3]) {
        thread.postMessage({ number, request: { verb: "read", keys: [] } });
        const [[answer]] = await once(thread, "message");
        outcomes.push(answer.failure?.code);
      }
      thread.postMessage("close");
      await once(thread, "exit");
      expect(outcomes).toEqual(["EIO", "EIO", undefined]);
    },
  );

  test("a folder that is put right while its thread lives begins with the present time, and so do its fences", async () => {
    const folder = testFolder();
    const file = join(folder, "locks.mdb");
    writeFileSync(file, "not one of LMDB".repeat(1_000));
    const locks = createLocks(fileStore(folder));
    await expect(locks.mutex("key").acquire()).rejects.toMatchObject({ code: "STORE_FAILURE" });
    // The thread is older than this, by the clock on the wall.
    await new Promise((resolve) => setTimeout(resolve, 20));
    const putRightMs = Date.now();
    rmSync(file);
    const { fence } = await locks.mutex("key").acquire();
    expect(Number(fence) / 1_000).toBeGreaterThanOrEqual(putRightMs);
    await locks.close();
  });

  // A loss of power leaves such a file if it comes before LMDB's first flush.
  test("a new file with nothing but zeros is made again", async () => {
    const folder = testFolder();
    writeFileSync(databasePath(folder), Buffer.alloc(65_536));
    const locks = createLocks(fileStore(folder));
    await locks.mutex("key").run(() => {});
    await locks.close();
    writeFileSync(databasePath(folder), Buffer.alloc(8_192), { flag: "r+" });
    expect(await firstError(folder)).toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("not an LMDB file"),
    });
  });

  test("the probe file of a killed process is removed by the next process", async () => {
    const folder = testFolder();
    writeFileSync(join(folder, "probe"), "left");
    const locks = createLocks(fileStore(folder));
    await locks.mutex("key").run(() => {});
    await locks.close();
    expect(readdirSync(folder).filter((name) => name.startsWith("probe"))).toEqual([]);
  });

  test("a folder that was removed is made again, and its fences are higher", async () => {
    const folder = join(testFolder(), "locks");
    mkdirSync(folder);
    const locks = createLocks(fileStore(folder));
    const { fence } = (await locks.mutex("key").tryAcquire())!;
    await locks.close();
    rmSync(folder, { recursive: true });
    // A fence may be ahead of the time by the length of its request.
    await until("the time has passed the fence", async () => Date.now() > Number(fence) / 1_000);
    const again = createLocks(fileStore(folder));
    const next = (await again.mutex("key").tryAcquire())!.fence;
    expect(next).toBeGreaterThan(fence);
    await again.close();
  });
});
