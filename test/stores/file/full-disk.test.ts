/** A disk without room, which only root can make: a small one in memory is mounted for it. */
import { once } from "node:events";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createLocks, type Lease, type Locks } from "holdfast";
import { fileStore } from "holdfast/file";
import { describe, expect, onTestFinished, test } from "vitest";
import { forkProgram } from "../../programs.ts";
import { canMount, mountedFolder } from "./mounts.ts";

/** The message has the remedy. */
const remedy = "The disk is full. Nothing was changed. Free some space; the store then continues by itself.";

/** A folder on a disk of so many MiB. */
const smallDisk = (size = 1) => mountedFolder(`size=${size}m`);

/** Fills the disk. Returns the function that frees it. */
function fill(folder: string): () => void {
  const path = join(folder, "ballast");
  for (const bytes of [65_536, 4_096]) {
    try {
      for (;;) writeFileSync(path, Buffer.alloc(bytes), { flag: "a" });
    } catch {
      // Full, but for less than that.
    }
  }
  return () => rmSync(path, { force: true });
}

/** Takes new locks until that fails. */
async function takeUntilFull(locks: Locks, got: Lease[]): Promise<unknown> {
  for (let index = got.length; index < 500; index++) {
    const mutex = locks.mutex(`key:${index}`, { ttlMs: 60_000 });
    const lease = await mutex.tryAcquire({ info: "x".repeat(1_000) }).catch((error: unknown) => error);
    if (lease instanceof Error) return lease;
    got.push(lease as Lease);
  }
  return undefined;
}

describe.skipIf(!canMount("file: the tests of a full disk"))("file: a full disk", { timeout: 60_000 }, () => {
  test("is an outage, loses nothing, and is over when there is room", async () => {
    const folder = smallDisk();
    const locks = createLocks(fileStore(join(folder, "data")), {
      requestTimeoutMs: 1_500,
      onWarning: () => {},
    });
    const kept = await locks.mutex("kept", { ttlMs: 60_000 }).acquire();
    const got: Lease[] = [];
    for (let index = 0; index < 20; index++) {
      got.push(await locks.mutex(`key:${index}`, { ttlMs: 60_000 }).acquire());
    }
    const makeRoom = fill(folder);

    const failure = await takeUntilFull(locks, got);
    expect(failure).toMatchObject({ code: "STORE_UNAVAILABLE", message: expect.stringContaining(remedy) });
    // Nothing was half-written: all that was confirmed is there, and nothing else.
    const held: string[] = [];
    for await (const { key } of locks.list({ prefix: "key:" })) held.push(key);
    expect(held.sort()).toEqual(got.map(({ key }) => key).sort());
    expect((await locks.inspect("kept")).held[0]?.fence).toBe(kept.fence);

    makeRoom();
    const after = await locks.mutex("key:after").acquire();
    expect(after.fence).toBeGreaterThan(0n);
    expect((await locks.mutex("new").acquire()).fence).toBeGreaterThan(got.at(-1)!.fence);
    expect(kept.held).toBe(true);
    expect(await kept.release()).toBe(true);
    await locks.close();
  });

  test("is reported by a store that is opened then, and that works when there is room", async () => {
    const folder = smallDisk();
    mkdirSync(join(folder, "data"));
    const makeRoom = fill(folder);
    const locks = createLocks(fileStore(join(folder, "data")), { requestTimeoutMs: 1_500 });
    const failure = await locks
      .mutex("any")
      .tryAcquire()
      .catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: "STORE_UNAVAILABLE", message: expect.stringContaining(remedy) });
    makeRoom();
    expect(await locks.mutex("any").tryAcquire()).not.toBeNull();
    await locks.close();
  });

  // Where lmdb fails to write a page far behind in its file, it writes over its own memory: a few of these end the process.
  test("does not end a process whose file has some megabytes, and is over when there is room", async () => {
    const folder = smallDisk(24);
    const program = new URL("./filling-process.ts", import.meta.url);
    const child = forkProgram(program, [join(folder, "data")], { silent: true });
    onTestFinished(() => void child.kill("SIGKILL"));
    const ended = once(child, "exit").then(([, signal]) => [signal]);
    const takeHundred = async (): Promise<readonly unknown[]> => {
      child.send("take");
      return Promise.race([once(child, "message").then(([outcomes]) => outcomes), ended]);
    };
    await once(child, "message");
    const makeRoom = fill(folder);
    for (let failed = 0; failed < 3; ) {
      const outcomes = await takeHundred();
      expect(new Set(["granted", "STORE_UNAVAILABLE", ...outcomes]).size).toBe(2);
      if (outcomes.includes("STORE_UNAVAILABLE")) failed++;
    }
    makeRoom();
    expect(new Set(await takeHundred())).toEqual(new Set(["granted"]));
  });
});
