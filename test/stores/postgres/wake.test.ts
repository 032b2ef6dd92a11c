/** The one connection that listens: when it is there, when it is not, and that it comes back. */
import type { Socket } from "node:net";
import { createLocks } from "holdfast";
import { type PostgresNotification, type PostgresStoreOptions, postgresStore } from "holdfast/postgres";
import { ManualClock } from "holdfast/testing";
import { Client, Pool } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { Listening } from "../../../src/stores/postgres/wake.ts";
import { until } from "../../engines/engine.ts";
import { canRunPgBouncer, startPgBouncer } from "../../engines/pgbouncer.ts";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";
import { type NetworkProxy, silence, startProxy } from "../../engines/proxy.ts";
import { newDriver } from "./new-driver.ts";

describe("postgres: who is listened for", () => {
  type Hear = (message: PostgresNotification) => void;

  /** A server whose sessions hear what is notified, or nothing. */
  function listen({ isHeard = true } = {}) {
    const clock = new ManualClock();
    const route = { isHeard };
    const sessions = { opened: 0, ended: 0, probes: 0 };
    let hear: Hear = () => {};
    let lose = () => {};
    const session = {
      query: async () => {},
      on: (event: string, heard: unknown) => {
        if (event === "notification") hear = heard as Hear;
        if (event === "end") lose = heard as () => void;
      },
      end: () => {
        sessions.ended++;
      },
    };
    const open = async () => {
      sessions.opened++;
      return session;
    };
    const notify = async (channel: string, payload: string) => {
      sessions.probes++;
      if (route.isHeard) hear({ channel, payload });
    };
    const listening = new Listening(open, notify, clock, 10_000);
    /** Whether somebody new is listened for, after so long. */
    const isListened = async (owner: string, ms: number) => {
      let state = "waits";
      const asked = listening.listen(owner, () => {});
      asked.then(
        () => {
          state = "listens";
        },
        () => {
          state = "refused";
        },
      );
      await clock.advance(ms);
      return state;
    };
    return { clock, route, sessions, listening, isListened, lose: () => lose() };
  }

  test("a session that hears nothing is given up, and listening fails", async () => {
    const { clock, sessions, listening } = listen({ isHeard: false });
    const failed = expect(listening.listen("a", () => {})).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringContaining("PostgreSQL accepted LISTEN, but no notification arrives"),
    });
    await clock.advance(1_000);
    await failed;
    await clock.advance(60_000);
    // Whoever wants to listen asks again by itself.
    expect(sessions).toEqual({ opened: 1, ended: 1, probes: 1 });
    listening.close();
  });

  test("where nothing is heard, others who come are refused at once, and ever more seldom one may try", async () => {
    const { clock, sessions, listening, isListened } = listen({ isHeard: false });
    const opened: number[] = [];
    expect(await isListened("first", 1_000)).toBe("refused");
    // A thousand clients that ask again and again, each of whom would have taken a session.
    for (let second = 0; second < 200; second++) {
      const before = sessions.opened;
      for (let client = 0; client < 5; client++) void isListened(`${client} of ${second}`, 0);
      await clock.advance(1_000);
      if (sessions.opened > before) opened.push(second);
    }
    // After 1, 2, 4, 8, 16, 32, and from then on 60 seconds, and the second that each attempt takes.
    expect(opened).toEqual([1, 4, 9, 18, 35, 68, 129, 190]);
    expect(sessions.ended).toBe(sessions.opened);
    listening.close();
  });

  test("once a probe is heard again, everybody is listened for at once", async () => {
    const { route, listening, isListened } = listen({ isHeard: false });
    for (let round = 0; round < 3; round++) await isListened("deaf", 9_000);
    route.isHeard = true;
    expect(await isListened("a", 0)).toBe("listens");
    expect(await isListened("b", 0)).toBe("listens");
    listening.close();
  });

  test("those who have listened before get another session however long nothing was heard", async () => {
    const { clock, route, sessions, listening, isListened, lose } = listen();
    expect(await isListened("old", 0)).toBe("listens");
    route.isHeard = false;
    lose();
    await clock.advance(60_000);
    // A second for each attempt, and between them 50 ms, 100 ms and so on up to 5 s.
    expect(sessions.opened).toBeGreaterThan(10);
    expect(await isListened("new", 0)).toBe("refused");
    route.isHeard = true;
    const before = sessions.opened;
    await clock.advance(6_000);
    expect(sessions.opened).toBe(before + 1);
    expect(await isListened("new", 0)).toBe("listens");
    listening.close();
  });

  test("the probe that a session hears is no wake-up, and one probe is enough", async () => {
    const { clock, sessions, listening } = listen();
    const told: string[] = [];
    for (const owner of ["a", "b"]) await listening.listen(owner, (key) => told.push(key));
    await clock.advance(60_000);
    expect(told).toEqual([]);
    expect(sessions).toEqual({ opened: 1, ended: 0, probes: 1 });
    listening.close();
  });

  // (1) The last one stops, and the work is done with that. (2) In the same moment another one comes, who finds it under way. (3) It is
  // said to be over, and nobody begins it again. A client that comes back to a lock server stops and listens like that.
  test("a client that comes just after the last one has stopped is listened for", async () => {
    const { clock, listening } = listen();
    const stop = await listening.listen("a", () => {});
    await clock.advance(0);
    stop();
    let isListening = false;
    void listening
      .listen("b", () => {})
      .then(() => {
        isListening = true;
      });
    await clock.advance(1_000);
    expect(isListening).toBe(true);
    listening.close();
  });

  test("a client that replaces one with a pending listen is listened for", async () => {
    const { clock, listening } = listen();
    listening.listen("a", () => {}).catch(() => {});
    for (let turn = 0; turn < 3; turn++) await Promise.resolve();
    let isListening = false;
    void listening
      .listen("a", () => {})
      .then(() => {
        isListening = true;
      });
    await clock.advance(1_000);
    expect(isListening).toBe(true);
    listening.close();
  });
});

describe.skipIf(!canRunPostgres())("postgres: listening", () => {
  let server: PostgresServer;
  let admin: Client;

  beforeAll(async () => {
    server = await startPostgres();
    admin = new Client({ connectionString: server.url });
    await admin.connect();
  }, 60_000);

  afterAll(async () => {
    await admin?.end();
    await server?.stop();
  });

  function poolOf(name: string, port = server.port): Pool {
    const url = server.url.replace(`:${server.port}/`, `:${port}/`);
    const pool = new Pool({ connectionString: url, max: 5, application_name: name });
    pool.on("error", () => {});
    onTestFinished(() => pool.end());
    return pool;
  }

  function open(pool: Pool, options: PostgresStoreOptions = {}) {
    const locks = createLocks(postgresStore(pool, { autoMigrate: true, ...options }), {
      onWarning: () => {},
    });
    onTestFinished(() => locks.close());
    return locks;
  }

  /** The sessions of this name whose last statement was to listen. */
  async function listeners(name: string): Promise<readonly number[]> {
    const sql =
      "select pid from pg_stat_activity where application_name = $1 and query ~ '^(listen|select 1)'";
    return (await admin.query<{ pid: number }>(sql, [name])).rows.map(({ pid }) => pid);
  }

  async function sessions(name: string): Promise<number> {
    const sql = "select count(*)::int as n from pg_stat_activity where application_name = $1";
    return (await admin.query<{ n: number }>(sql, [name])).rows[0]!.n;
  }

  test("a waiter in another process is notified long before its next heartbeat", async () => {
    const [one, other] = [open(poolOf("one")), open(poolOf("other"))];
    const lease = await one.mutex("told", { ttlMs: 60_000 }).acquire();
    const next = other.mutex("told", { ttlMs: 60_000 }).acquire({ waitMs: 15_000 });
    await until("it waits", async () => (await one.inspect("told")).waitingCount === 1);
    await lease.release();
    // A heartbeat would come after 20 s.
    expect((await next).held).toBe(true);
  });

  test.skipIf(!canRunPgBouncer())(
    "a waiter behind PgBouncer is notified through a session past it",
    async () => {
      const bouncer = await startPgBouncer(server, 4);
      onTestFinished(() => bouncer.stop());
      const listener = async () => {
        const client = new Client({ connectionString: server.url });
        await client.connect();
        return client;
      };
      const [one, other] = [1, 2].map(() => open(poolOf("bounced", bouncer.port), { listener }));
      const lease = await one!.mutex("bounced", { ttlMs: 60_000 }).acquire();
      const next = other!.mutex("bounced", { ttlMs: 60_000 }).acquire({ waitMs: 15_000 });
      await until("it waits", async () => (await one!.inspect("bounced")).waitingCount === 1);
      await lease.release();
      expect((await next).held).toBe(true);
    },
  );

  // PgBouncer answers `listen` and forgets it: the session is somebody else's in the next moment.
  test.skipIf(!canRunPgBouncer())("a pool that leads to PgBouncer is noticed to hear nothing", async () => {
    const bouncer = await startPgBouncer(server, 4);
    onTestFinished(() => bouncer.stop());
    const [one, other] = [1, 2].map(() => open(poolOf("unheard", bouncer.port)));
    const lease = await one!.mutex("unheard", { ttlMs: 60_000 }).acquire();
    const next = other!.mutex("unheard", { ttlMs: 60_000 }).acquire({ waitMs: 15_000 });
    await until("it waits", async () => (await one!.inspect("unheard")).waitingCount === 1);
    await lease.release();
    // A heartbeat would come after 20 s.
    expect((await next).held).toBe(true);
  });

  test("without pushes a waiter is served as well", async () => {
    const options = { listener: false, maxPollMs: 100 } as const;
    const [one, other] = [open(poolOf("polls"), options), open(poolOf("polls"), options)];
    const lease = await one.mutex("polled", { ttlMs: 60_000 }).acquire();
    const next = other.mutex("polled", { ttlMs: 60_000 }).acquire({ waitMs: 15_000 });
    await until("it waits", async () => (await one.inspect("polled")).waitingCount === 1);
    await lease.release();
    expect((await next).held).toBe(true);
    expect(await listeners("polls")).toEqual([]);
  });

  test("a connection that is ended by the server is replaced, and works", async () => {
    const name = "ended";
    const locks = open(poolOf(name));
    const other = open(poolOf("ending"));
    for (let round = 0; round < 3; round++) {
      await until("one listens", async () => (await listeners(name)).length === 1);
      const [pid] = await listeners(name);
      await admin.query("select pg_terminate_backend($1)", [pid]);
      await until("another one listens", async () => {
        const now = await listeners(name);
        return now.length === 1 && now[0] !== pid;
      });
    }
    const lease = await other.mutex("ended", { ttlMs: 60_000 }).acquire();
    const next = locks.mutex("ended", { ttlMs: 60_000 }).acquire({ waitMs: 15_000 });
    await until("it waits", async () => (await other.inspect("ended")).waitingCount === 1);
    await lease.release();
    expect((await next).held).toBe(true);
  });

  test("a connection that has silently died is noticed and replaced", async () => {
    const proxy: NetworkProxy = await startProxy(server.port);
    onTestFinished(() => proxy.stop());
    const clock = new ManualClock();
    const driver = await newDriver(poolOf("silent", proxy.port), { clock });
    const told: string[] = [];
    await driver.listen?.("owner", (_, id) => told.push(id));
    proxy.decide(({ connection }) => (connection.number === 1 ? "hold" : "pass"));
    await clock.advance(15_000);
    await clock.advance(10_000);
    await until("another one listens", async () => {
      await clock.advance(100);
      const channel =
        "select pg_notify('holdfast_' || left(encode(sha256('owner'), 'hex'), 32), '[\"key\",\"id\",\"7\"]')";
      await admin.query(channel);
      return told.length > 0;
    });
    expect(told[0]).toBe("id");
    proxy.decide(silence);
    await driver.close?.();
    proxy.cut();
  });

  test("a connection that is lost as soon as it is there fails whoever wants to listen, and nothing else", async () => {
    const pool = poolOf("lost-at-once");
    const driver = await newDriver(pool);
    onTestFinished(() => driver.close?.());
    // Before anything that awaits the connection goes on.
    pool.once("acquire", (connection) => {
      const { stream } = (connection as unknown as { connection: { stream: Socket } }).connection;
      process.nextTick(() => stream.destroy(new Error("reset")));
    });
    await expect(driver.listen?.("owner", () => {})).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await driver.listen?.("owner", () => {});
  });

  test("nothing is left of a store that was closed, also before it was ready", async () => {
    const name = "closed";
    const pool = poolOf(name);
    for (let round = 0; round < 5; round++) {
      const locks = createLocks(postgresStore(pool, { autoMigrate: true }));
      const waiting = round % 2 === 0 ? undefined : locks.mutex("closed").run(() => {});
      await waiting;
      await locks.close();
    }
    // A connection that was being opened is given up when it is open.
    await until("nobody listens", async () => (await listeners(name)).length === 0);
    await until("the pool has all of its own", async () => pool.totalCount === pool.idleCount);
    const mine = new Pool({ connectionString: server.url, application_name: "mine" });
    const locks = createLocks(
      postgresStore(mine, {
        listener: async () => {
          const client = new Client({ connectionString: server.url, application_name: "mine" });
          await client.connect();
          return client;
        },
      }),
    );
    await locks.mutex("mine").run(() => {});
    await locks.close();
    await mine.end();
    await until("its connections are gone", async () => (await sessions("mine")) === 0);
  });

  test("a notification of another program on the channel is no wake-up", async () => {
    const driver = await newDriver(poolOf("strangers"));
    const told: string[] = [];
    const end = await driver.listen?.("owner", (key, id, fence) => told.push(`${key} ${id} ${fence}`));
    const notify = (payload: string) =>
      admin.query("select pg_notify('holdfast_' || left(encode(sha256('owner'), 'hex'), 32), $1)", [payload]);
    for (const payload of [
      "",
      "x",
      "7",
      "null",
      "[1,2]",
      '["key","id"]',
      '["key","id","-7"]',
      '["key","id","7"]',
    ])
      await notify(payload);
    await until("ours is heard", async () => told.length > 0);
    expect(told).toEqual(["key id 7"]);
    end?.();
    await driver.close?.();
  });
});
