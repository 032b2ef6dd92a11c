import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { describe, expect, test } from "vitest";
import { isRunning, startEngine, until } from "./engine.ts";
import { canRunRedis, freePort, startRedis } from "./redis.ts";

describe.skipIf(!canRunRedis())("an engine", () => {
  test("is paused, killed, started again on its port, and leaves nothing", async () => {
    const server = await startRedis();
    const { port, folder } = server;
    const first = server.process.pid!;
    server.pause();
    const answer = server.command("PING");
    expect(await Promise.race([answer, after(100)])).toBe("silence");
    server.resume();
    expect(await answer).toBe("PONG");
    await server.kill();
    expect(isRunning(first)).toBe(false);
    await server.restart();
    expect(server.process.pid).not.toBe(first);
    expect([server.port, await server.command("PING")]).toEqual([port, "PONG"]);
    await server.stop();
    expect([isRunning(server.process.pid!), existsSync(folder)]).toEqual([false, false]);
  });

  test("takes no other server's answer for its own", async () => {
    const server = await startRedis();
    await expect(startRedis([], server.port)).rejects.toThrow("ended at once");
    await server.stop();
  });

  test("says what it said when it does not start", async () => {
    const folders: string[] = [];
    const failing = startEngine({
      name: "failing",
      program: "sh",
      port: await freePort(),
      prepare: (folder) => void folders.push(folder),
      args: () => ["-c", "echo there is no disk; exit 1"],
      isReady: async () => false,
    });
    await expect(failing).rejects.toThrow("there is no disk");
    expect(folders.filter((folder) => existsSync(folder))).toEqual([]);
  });

  test("ends with the process that started it, however that ends, with its children and when paused", async () => {
    const script = `
      import { existsSync, readFileSync } from "node:fs";
      import { startEngine } from "./test/engines/engine.ts";
      const childOf = (folder) =>
        existsSync(folder + "/child") ? Number(readFileSync(folder + "/child", "utf8")) : 0;
      const engine = await startEngine({
        name: "orphan",
        program: "sh",
        hasChildren: true,
        args: () => ["-c", "sleep 600 & echo $! > child; wait"],
        // The shell makes the file before it writes to it.
        isReady: async ({ folder }) => childOf(folder) > 0,
      });
      const child = childOf(engine.folder);
      engine.pause();
      console.log(JSON.stringify([engine.folder, engine.process.pid, child]));
      setInterval(() => {}, 1_000);`;
    const parent = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "-e", script], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [line] = await createInterface({ input: parent.stdout })
      [Symbol.asyncIterator]()
      .next()
      .then(({ value }) => [value as string]);
    const [folder, ...pids] = JSON.parse(line!) as [string, number, number];
    expect([existsSync(folder), ...pids.map(isRunning)]).toEqual([true, true, true]);
    parent.kill("SIGKILL");
    await until("nothing is left", async () => !existsSync(folder) && !pids.some(isRunning));
  });
});

function after(ms: number): Promise<string> {
  return new Promise((resolve) => setTimeout(() => resolve("silence"), ms));
}
