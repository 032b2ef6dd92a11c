import { existsSync } from "node:fs";
import { Client } from "pg";
import { describe, expect, test } from "vitest";
import { isRunning, until } from "./engine.ts";
import { canRunPgBouncer, startPgBouncer } from "./pgbouncer.ts";
import { canRunPostgres, startPostgres, startPostgresStandby } from "./postgres.ts";
import { cutReplyTo, startProxy } from "./proxy.ts";

describe.skipIf(!canRunPostgres())("PostgreSQL", () => {
  test("is spoken to, paused, killed and started again with its data, and leaves nothing", async () => {
    const server = await startPostgres();
    const client = await connect(server.url);
    await client.query("create table kept as select 1 as value");
    const backend = (await client.query("select pg_backend_pid() as pid")).rows[0].pid as number;
    server.pause();
    // The process that serves this connection has to stand still as well, not only the one that started it.
    const answer = client.query("select 1").then(() => "answer");
    expect(await Promise.race([answer, silence(200)])).toBe("silence");
    server.resume();
    expect(await answer).toBe("answer");
    const first = server.process.pid!;
    await server.kill();
    expect([first, backend].filter(isRunning)).toEqual([]);
    await server.restart();
    expect(await ask(server.url, "select value from kept")).toEqual([{ value: 1 }]);
    await server.stop();
    expect([isRunning(server.process.pid!), existsSync(server.folder)]).toEqual([false, false]);
  });

  test("takes settings, and waits for the disk when told to", async () => {
    const server = await startPostgres({ fsync: true, settings: { max_connections: "7" } });
    const sql = "select current_setting('fsync') as fsync, current_setting('max_connections') as most";
    expect(await ask(server.url, sql)).toEqual([{ fsync: "on", most: "7" }]);
    await server.stop();
  });

  test("has a standby that follows it, only reads, and takes its place when promoted; both leave nothing", async () => {
    const server = await startPostgres();
    const standby = await startPostgresStandby(server);
    await ask(server.url, "create table followed as select 1 as value");
    await standby.catchUp();
    expect(await ask(standby.url, "select value from followed")).toEqual([{ value: 1 }]);
    await expect(ask(standby.url, "insert into followed values (2)")).rejects.toMatchObject({
      code: "25006",
    });
    await server.stop();
    await standby.promote();
    await ask(standby.url, "insert into followed values (2)");
    await standby.stop();
    const left = [server, standby].map(({ process, folder }) => [
      isRunning(process.pid!),
      existsSync(folder),
    ]);
    expect(left).toEqual([
      [false, false],
      [false, false],
    ]);
  });

  test("commits what a client never hears of, when the connection is cut before the reply", async () => {
    const server = await startPostgres();
    const proxy = await startProxy(server.port);
    await ask(server.url, "create table swaps (value int)");
    const client = await connect(server.url.replace(`:${server.port}/`, `:${proxy.port}/`));
    proxy.decide(cutReplyTo("insert into swaps"));
    await expect(client.query("insert into swaps values (1)")).rejects.toThrow();
    await until("it is there", async () => (await ask(server.url, "select * from swaps")).length === 1);
    await proxy.stop();
    await server.stop();
  });
});

describe.skipIf(!canRunPgBouncer())("PgBouncer", () => {
  test("gives a connection another session in each transaction, and leaves nothing", async () => {
    const server = await startPostgres();
    const bouncer = await startPgBouncer(server, 2);
    const [one, two] = [await connect(bouncer.url), await connect(bouncer.url)];
    await one.query("begin");
    const before = await sessionOf(one);
    await two.query("begin");
    const other = await sessionOf(two);
    await one.query("commit");
    await two.query("commit");
    expect(other).not.toBe(before);
    // Whoever asks next gets the session that was given back last.
    expect(await sessionOf(one)).toBe(other);
    await Promise.all([one.end(), two.end()]);

    bouncer.pause();
    const answer = ask(bouncer.url, "select 1 as value");
    expect(await Promise.race([answer, silence(200)])).toBe("silence");
    bouncer.resume();
    expect(await answer).toEqual([{ value: 1 }]);
    await bouncer.kill();
    await bouncer.restart();
    expect(await ask(bouncer.url, "select 1 as value")).toEqual([{ value: 1 }]);
    await bouncer.stop();
    await server.stop();
    expect([isRunning(bouncer.process.pid!), existsSync(bouncer.folder)]).toEqual([false, false]);
  });
});

async function connect(url: string): Promise<Client> {
  const client = new Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  return client;
}

async function ask(url: string, sql: string): Promise<unknown[]> {
  const client = await connect(url);
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

async function sessionOf(client: Client): Promise<number> {
  return (await client.query("select pg_backend_pid() as pid")).rows[0].pid;
}

function silence(ms: number): Promise<string> {
  return new Promise((resolve) => setTimeout(() => resolve("silence"), ms));
}
