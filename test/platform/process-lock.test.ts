import { type ChildProcess, execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { takeLock } from "../../src/platform/process-lock.ts";
import { until } from "../engines/engine.ts";
import { compiledForm, forkProgram } from "../programs.ts";
import { testFolder } from "../stores/file/folders.ts";

function newPath(): string {
  return join(testFolder(), "lock");
}

function start(path: string, mode: string): ChildProcess {
  const child = forkProgram(new URL("./lock-process.ts", import.meta.url), [path, mode]);
  onTestFinished(() => void child.kill("SIGKILL"));
  return child;
}

/** A process that has the lock. */
async function holder(path: string): Promise<ChildProcess> {
  const child = start(path, "once");
  expect((await once(child, "message"))[0]).toBe("taken");
  return child;
}

async function killed(child: ChildProcess): Promise<void> {
  const exit = once(child, "exit");
  child.kill("SIGKILL");
  await exit;
}

describe("a lock between processes", () => {
  test("has one holder, and leaves nothing behind", async () => {
    const path = newPath();
    const giveBack = await takeLock(path, 0);
    expect(await takeLock(path, 0)).toBeUndefined();
    expect(await takeLock(path, 20)).toBeUndefined();
    giveBack?.();
    giveBack?.();
    const next = await takeLock(path, 0);
    expect(next).toBeDefined();
    // The former holder's does not take it from the next.
    giveBack?.();
    expect(await takeLock(path, 0)).toBeUndefined();
    next?.();
    expect(readdirSync(join(path, ".."))).toEqual([]);
  });

  test("is waited for until it is given back", async () => {
    const path = newPath();
    const order: number[] = [];
    const takers = Array.from({ length: 20 }, async (_, number) => {
      const giveBack = await takeLock(path, 60_000);
      order.push(number);
      await new Promise((resolve) => setImmediate(resolve));
      expect(order.at(-1)).toBe(number);
      giveBack?.();
    });
    await Promise.all(takers);
    expect(order).toHaveLength(20);
  });

  test("is free when its process was killed, and not while that is stopped", async () => {
    const path = newPath();
    const child = await holder(path);
    child.kill("SIGSTOP");
    for (let round = 0; round < 3; round++) expect(await takeLock(path, 0)).toBeUndefined();
    const waiting = takeLock(path, 60_000);
    await killed(child);
    const giveBack = await waiting;
    expect(giveBack).toBeDefined();
    expect(await takeLock(path, 0)).toBeUndefined();
    giveBack?.();
  });

  test("of a cluster's worker is free when that was killed", async () => {
    const path = newPath();
    const child = start(path, "cluster");
    const [[taken, worker]] = (await once(child, "message")) as [[string, number]];
    expect(taken).toBe("taken");
    expect(await takeLock(path, 0)).toBeUndefined();
    process.kill(worker, "SIGKILL");
    expect(await takeLock(path, 60_000)).toBeDefined();
    expect(child.exitCode).toBeNull();
  });

  // Each kill may come at any step: before the socket, before the rename, while it is held, while a dead holder's socket is removed.
  test("never has two holders, however they are killed", async () => {
    const path = newPath();
    const heard: string[] = [];
    const restarted = () => {
      const child = start(path, "often");
      child.on("message", (message) => void heard.push(String(message)));
      return child;
    };
    const children = Array.from({ length: 3 }, restarted);
    for (let round = 0; round < 12; round++) {
      const rounds = heard.length;
      await until("the lock goes round", async () => heard.length >= rounds + 10);
      await killed(children[round % 3]!);
      children[round % 3] = restarted();
    }
    await Promise.all(children.map(killed));
    expect(heard).not.toContain("two at once");
    const giveBack = await takeLock(path, 0);
    expect(giveBack).toBeDefined();
    giveBack?.();
  });

  test("is made where the path is too long for a socket", async () => {
    const folder = join(testFolder(), "a".repeat(120));
    mkdirSync(folder);
    const path = join(folder, "lock");
    const child = await holder(path);
    expect(await takeLock(path, 0)).toBeUndefined();
    await killed(child);
    const giveBack = await takeLock(path, 60_000);
    expect(giveBack).toBeDefined();
    giveBack?.();
    expect(readdirSync(folder)).toEqual([]);
  });

  test("removes what processes left that were killed before they had it, and nothing else", async () => {
    const path = newPath();
    const left = [`${path}.00000000-0000-0000`, `${path}.11111111-1111-1111`, `${path}.mine`];
    for (const folder of left) {
      mkdirSync(folder);
      writeFileSync(join(folder, "socket"), "");
    }
    for (const folder of [left[0]!, left[2]!]) utimesSync(folder, 1, 1);
    (await takeLock(path, 0))?.();
    expect(left.map((folder) => existsSync(folder))).toEqual([false, true, true]);
  });

  test("fails where no folder can be made", async () => {
    await expect(takeLock(join(testFolder(), "missing", "lock"), 0)).rejects.toMatchObject({
      code: "ENOENT",
    });
    const path = newPath();
    writeFileSync(path, "");
    await expect(takeLock(path, 0)).rejects.toMatchObject({ code: "ENOTDIR" });
    expect(readdirSync(join(path, ".."))).toEqual(["lock"]);
  });

  test("does not keep its process alive", () => {
    const module = compiledForm(new URL("../../src/platform/process-lock.ts", import.meta.url).pathname);
    const source = `import(${JSON.stringify(module)}).then(({ takeLock }) => takeLock(process.argv[1], 0))`;
    execFileSync(process.execPath, ["-e", source, newPath()], { timeout: 60_000 });
  });
});
