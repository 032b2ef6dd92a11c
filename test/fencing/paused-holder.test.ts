/**
 * The holder that every lock with a timeout has to fear: a real process, stopped by the operating system for longer than its
 * ttl, which writes when it wakes up. Without a guard its write lands on top of its successor's. With one it is refused.
 */
import { once } from "node:events";
import { createLocks } from "holdfast";
import { test } from "vitest";
import { until } from "../engines/engine.ts";
import { forkProgram } from "../programs.ts";
import { storages } from "./storages.ts";

const ttlMs = 1_000;

interface WriterMessage {
  readonly fence?: string;
  readonly outcomes?: Readonly<Record<string, string>>;
}

// All at once, since most of the time is spent on waiting for a ttl.
test.concurrent.for(Object.entries(storages))(
  "%s: a paused holder corrupts what is not guarded, and is refused by what is",
  { timeout: 90_000 },
  async ([name, { canRun, start, open }], { expect, onTestFinished, skip }) => {
    if (!(await canRun())) skip();
    const server = await start();
    onTestFinished(() => server.stop());
    const storage = await open(server.url);
    onTestFinished(async () => void (await storage.end()));
    await storage.prepare();
    const locks = createLocks(storage.store, { onWarning: () => {} });
    onTestFinished(() => locks.close());

    const program = new URL("./paused-writer.ts", import.meta.url);
    const child = forkProgram(program, [name, server.url, `${ttlMs}`]);
    onTestFinished(() => void child.kill("SIGKILL"));
    const messages: WriterMessage[] = [];
    child.on("message", (message) => messages.push(message as WriterMessage));
    await until("the process holds the lock", async () => messages.length === 1);

    child.kill("SIGSTOP");
    const lease = await locks.mutex("paused", { ttlMs: 20_000 }).acquire({ waitMs: 30_000 });
    for (const target of ["plain", "fenced"] as const) await storage.write(target, "new", lease.fence);
    child.send("write");
    const exit = once(child, "exit");
    child.kill("SIGCONT");
    await exit;
    // What a process says last may be heard after its end.
    await until("it has said what came of it", async () => messages.length === 2);

    expect(lease.held).toBe(true);
    expect(lease.fence).toBeGreaterThan(BigInt(messages[0]!.fence!));
    expect(messages.at(-1)?.outcomes).toEqual({ plain: "written", fenced: "STALE_FENCE" });
    expect(await storage.read("plain")).toBe("stale");
    expect(await storage.read("fenced")).toBe("new");

    // The holder itself goes on as it likes.
    await storage.write("fenced", "newer", lease.fence);
    expect(await storage.read("fenced")).toBe("newer");
  },
);
