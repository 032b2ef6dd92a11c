import { existsSync } from "node:fs";
import { createConnection } from "mysql2/promise";
import { describe, expect, test } from "vitest";
import { isRunning } from "./engine.ts";
import { canRunMariadb, startMariadb } from "./mariadb.ts";

describe.skipIf(!canRunMariadb())("MariaDB", () => {
  test("is spoken to, paused, killed and started again with its data, and leaves nothing", async () => {
    const server = await startMariadb(["--max-connections=17"]);
    expect(await ask(server.url, "select @@max_connections as most")).toEqual([{ most: 17 }]);
    await ask(server.url, "create table kept (value int) engine = innodb");
    await ask(server.url, "insert into kept values (1)");
    server.pause();
    const answer = ask(server.url, "select value from kept");
    expect(await Promise.race([answer, silence(200)])).toBe("silence");
    server.resume();
    expect(await answer).toEqual([{ value: 1 }]);
    await server.kill();
    await server.restart();
    expect(await ask(server.url, "select value from kept")).toEqual([{ value: 1 }]);
    await server.stop();
    expect([isRunning(server.process.pid!), existsSync(server.folder)]).toEqual([false, false]);
  }, 120_000);
});

async function ask(url: string, sql: string): Promise<unknown> {
  const connection = await createConnection(url);
  try {
    return (await connection.query(sql))[0];
  } finally {
    await connection.end();
  }
}

function silence(ms: number): Promise<string> {
  return new Promise((resolve) => setTimeout(() => resolve("silence"), ms));
}
