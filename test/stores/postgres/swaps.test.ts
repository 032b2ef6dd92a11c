/** What happens between transactions: the races that the comment of the function names. */
import { setTimeout as sleep } from "node:timers/promises";
import type { CasDriver, Change, Version } from "holdfast/cas";
import type { PostgresClient } from "holdfast/postgres";
import { Pool, type PoolClient } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";
import { anyTime, changeOf, newDriver } from "./new-driver.ts";

describe.skipIf(!canRunPostgres())("postgres: swaps", () => {
  let server: PostgresServer;
  let pool: Pool;
  let driver: CasDriver;

  beforeAll(async () => {
    // How soon the server looks for a deadlock, and fails one of those who are in it.
    server = await startPostgres({ settings: { deadlock_timeout: "10ms" } });
    pool = new Pool({ connectionString: server.url, max: 20 });
    driver = await newDriver(pool);
  }, 60_000);

  afterAll(async () => {
    await driver?.close?.();
    await pool?.end();
    await server?.stop();
  });

  async function write(key: string, expected: Version | undefined, text: string): Promise<Version> {
    const { results } = await driver.swap(anyTime([changeOf(key, expected, text)]));
    if (results[0]?.state !== "swapped") throw new Error(`${key} was not written: ${results[0]?.state}`);
    return results[0].version;
  }

  /** Keeps a row locked until it is told to go on. */
  async function lockRow(key: string): Promise<PoolClient> {
    const client = await pool.connect();
    await client.query("begin");
    await client.query("select from holdfast_locks where key = $1 for update", [key]);
    return client;
  }

  async function letGo(client: PoolClient, how: "commit" | "rollback"): Promise<void> {
    await client.query(how);
    client.release();
  }

  /** A client inside of a transaction, for what the procedure would refuse there. */
  function inside(client: PoolClient): PostgresClient {
    const call = /^call (.*)_swap_v1"\((.*), null\)$/;
    const direct = 'select $7::text as new_version, $1_change_v1"($2) as reply'.replace("$7", "$$7");
    return { query: (text, values) => client.query(text.replace(call, direct), values) };
  }

  async function isWaiting(): Promise<boolean> {
    const { rows } = await pool.query("select count(*)::int as n from pg_locks where not granted");
    return rows[0].n > 0;
  }

  test("a record that is changed while a swap waits for it is a conflict that brings the change along", async () => {
    const first = await write("waited", undefined, "one");
    const holder = await lockRow("waited");
    const swap = driver.swap(anyTime([changeOf("waited", first, "mine")]));
    await until("the swap waits", isWaiting);
    const update = "update holdfast_locks set record = 'theirs', version = $1 where key = 'waited'";
    await holder.query(update, ["00000000-0000-0000-0000-000000000002"]);
    await letGo(holder, "commit");
    expect((await swap).results).toEqual([
      { state: "conflict", current: { version: "00000000-0000-0000-0000-000000000002", text: "theirs" } },
    ]);
  });

  test("a record that is removed while a swap waits for it is absent, and stays so", async () => {
    const first = await write("removed", undefined, "one");
    const holder = await lockRow("removed");
    const swap = driver.swap(anyTime([changeOf("removed", first, "mine")]));
    await until("the swap waits", isWaiting);
    await holder.query("delete from holdfast_locks where key = 'removed'");
    await letGo(holder, "commit");
    expect((await swap).results).toEqual([{ state: "conflict", current: undefined }]);
    expect((await driver.read(["removed"])).records).toEqual([undefined]);
  });

  test("a record that others make while a swap wants to make it is a conflict that brings theirs along", async () => {
    const holder = await pool.connect();
    await holder.query("begin");
    const insert = "insert into holdfast_locks values ('made', $1, 'theirs', false, 0)";
    await holder.query(insert, ["00000000-0000-0000-0000-000000000003"]);
    const swap = driver.swap(
      anyTime([changeOf("made", undefined, "mine"), changeOf("made-too", undefined, "x")]),
    );
    await until("the swap waits", isWaiting);
    await letGo(holder, "commit");
    expect((await swap).results).toMatchObject([
      { state: "conflict", current: { version: "00000000-0000-0000-0000-000000000003", text: "theirs" } },
      { state: "swapped" },
    ]);
  });

  /** Made by one batch, so that all have the same version. */
  async function writeTogether(keys: readonly string[]): Promise<Version> {
    const { results } = await driver.swap(anyTime(keys.map((key) => changeOf(key, undefined, "old"))));
    const [version, ...others] = results.map((result) => result.state === "swapped" && result.version);
    if (version === undefined || version === false || others.some((other) => other !== version))
      throw new Error(`${keys} were not written together: ${JSON.stringify(results)}`);
    return version;
  }

  test.each<[string, (keys: readonly string[]) => Promise<readonly Version[]>]>([
    ["versions of their own", (keys) => Promise.all(keys.map((key) => write(key, undefined, "old")))],
    ["one version", async (keys) => Array(keys.length).fill(await writeTogether(keys))],
  ])(
    "of a batch of updates that expects %s, those that fail bring along what is there, and the others are made",
    async (how, writeAll) => {
      const keys = ["a", "b", "c", "d"].map((name) => `${how} ${name}`);
      const versions = await writeAll(keys);
      const theirs = await write(keys[1]!, versions[1], "theirs");
      await pool.query("delete from holdfast_locks where key = $1", [keys[2]]);
      const keepUntilMs = Date.now() + 60_000;
      // Not in the order of the keys, so that numbers and places differ.
      const changes = [3, 1, 0, 2].map((nth) => ({
        ...changeOf(keys[nth]!, versions[nth], "mine"),
        keepUntilMs,
      }));
      expect((await driver.swap(anyTime(changes))).results).toEqual([
        { state: "swapped", version: expect.any(String) },
        { state: "conflict", current: { version: theirs, text: "theirs" } },
        { state: "swapped", version: expect.any(String) },
        { state: "conflict", current: undefined },
      ]);
      const { records } = await driver.read(keys);
      expect(records.map((record) => record?.text)).toEqual(["mine", "theirs", undefined, "mine"]);
    },
  );

  test.each<[string, readonly Partial<Change>[]]>([
    [
      "all the same",
      [
        { idle: true, keepUntilMs: 5 },
        { idle: true, keepUntilMs: 5 },
      ],
    ],
    ["all the same, and not idle", [{ keepUntilMs: 5 }, { keepUntilMs: 5 }]],
    [
      "different in time",
      [
        { idle: true, keepUntilMs: 5 },
        { idle: true, keepUntilMs: 6 },
      ],
    ],
    ["different in whether they are idle", [{ keepUntilMs: 5 }, { idle: true, keepUntilMs: 5 }]],
  ])("for how long each of a batch is kept is written where it is %s", async (how, terms) => {
    const keys = terms.map((_, nth) => `terms: ${how} ${nth}`);
    const version = await writeTogether(keys);
    const changes = terms.map((own, nth) => ({ ...changeOf(keys[nth]!, version, `${nth}`), ...own }));
    await driver.swap(anyTime(changes));
    const select =
      "select idle, keep_until_ms::int, record from holdfast_locks where key = any ($1) order by key";
    const { rows } = await pool.query(select, [keys]);
    expect(rows).toEqual(
      terms.map(({ idle = false, keepUntilMs }, nth) => ({
        idle,
        keep_until_ms: keepUntilMs,
        record: `${nth}`,
      })),
    );
  });

  test.each(["made", "changed"])(
    "whether a record is idle, and until when it is kept, is written when it is %s",
    async (how) => {
      const key = `kept-${how}`;
      const version = how === "made" ? undefined : await write(key, undefined, "old");
      const columns = async () =>
        (await pool.query("select idle, keep_until_ms::int from holdfast_locks where key = $1", [key])).rows;
      const { results } = await driver.swap(
        anyTime([{ ...changeOf(key, version, "one"), idle: true, keepUntilMs: 0 }]),
      );
      expect(await columns()).toEqual([{ idle: true, keep_until_ms: 0 }]);
      const made = results[0]?.state === "swapped" ? results[0].version : undefined;
      await driver.swap(anyTime([{ ...changeOf(key, made, "two"), idle: true, keepUntilMs: 12_345 }]));
      expect(await columns()).toEqual([{ idle: true, keep_until_ms: 12_345 }]);
    },
  );

  test("a batch whose time passes while it waits changes nothing, whichever of its keys it waits for", async () => {
    const [one, two] = [await write("late-1", undefined, "old"), await write("late-2", undefined, "old")];
    for (const created of [[], [changeOf("late-3", undefined, "new")]]) {
      // Whoever had the row changes nothing in the end, so only the clock speaks against the batch.
      const holder = await lockRow("late-2");
      const nowMs = Math.floor((await driver.read([])).nowMs);
      const changes = [changeOf("late-1", one, "new"), changeOf("late-2", two, "new"), ...created];
      const swap = driver.swap({ changes, earliestMs: nowMs - 1_000, latestMs: nowMs + 400 });
      await until("the swap waits", isWaiting);
      await sleep(500);
      await letGo(holder, "rollback");
      const { results, nowMs: laterMs } = await swap;
      expect(results).toEqual(changes.map(() => ({ state: "untimely" })));
      expect(laterMs).toBeGreaterThan(nowMs + 400);
      const { records } = await driver.read(["late-1", "late-2", "late-3"]);
      expect(records.map((record) => record?.text)).toEqual(["old", "old", undefined]);
    }
  });

  test("batches that overlap at random, with new keys and known ones, do not deadlock", async () => {
    const keys = Array.from({ length: 60 }, (_, index) => `shared-${index}`);
    const drivers = [driver, await newDriver(pool), await newDriver(pool), await newDriver(pool)];
    const removed = await newDriver(pool);
    let swapped = 0;
    const work = drivers.map(async (each) => {
      const versions = new Map<string, Version | undefined>();
      for (let round = 0; round < 60; round++) {
        const chosen = keys.filter(() => Math.random() < 0.5).sort(() => Math.random() - 0.5);
        const changes = chosen.map((key) => ({
          ...changeOf(key, versions.get(key), `${round}`),
          // Some are removed right away, so that they are made again.
          keepUntilMs: Math.random() < 0.2 ? 0 : Date.now() + 60_000,
        }));
        const { results } = await each.swap(anyTime(changes));
        for (const [index, result] of results.entries()) {
          const key = chosen[index]!;
          if (result.state === "swapped") {
            swapped++;
            versions.set(key, result.version);
          } else if (result.state === "conflict") versions.set(key, result.current?.version);
        }
      }
    });
    const sweeps = (async () => {
      for (let round = 0; round < 40; round++) {
        await removed.sweep?.(10);
        await sleep(5);
      }
    })();
    // An error of the server, as for a deadlock, would fail any of them.
    await Promise.all([...work, sweeps]);
    expect(swapped).toBeGreaterThan(500);
  });

  test("a sweep skips locked rows, and takes no more than its limit", async () => {
    const old = (key: string) => ({ ...changeOf(key, undefined, "old"), keepUntilMs: 0 });
    await driver.swap(anyTime(["old-1", "old-2", "old-3", "old-4"].map(old)));
    const holder = await lockRow("old-2");
    expect(await driver.sweep?.(2)).toBe(2);
    while ((await driver.sweep?.(2)) !== 0);
    const { records } = await driver.read(["old-1", "old-2", "old-3", "old-4"]);
    expect(records.map((record) => record?.text)).toEqual([undefined, "old", undefined, undefined]);
    await letGo(holder, "rollback");
  });

  test("while one process sweeps, others leave the server alone", async () => {
    const keys = Array.from({ length: 12 }, (_, nth) => `crowded-${nth}`);
    await driver.swap(anyTime(keys.map((key) => ({ ...changeOf(key, undefined, "old"), keepUntilMs: 0 }))));
    const [first, others] = [await pool.connect(), [await newDriver(pool), await newDriver(pool)]];
    await first.query("begin");
    const sweeping = await newDriver(inside(first));
    expect(await sweeping.sweep?.(4)).toBe(4);
    expect(await Promise.all(others.map((other) => other.sweep?.(4)))).toEqual([0, 0]);
    await letGo(first, "commit");
    expect(await others[0]?.sweep?.(4)).toBe(4);
    while ((await driver.sweep?.(100)) !== 0);
    await Promise.all([sweeping, ...others].map((each) => each.close?.()));
  });

  test("a commit waits for the disk also where the connection is set not to", async () => {
    const lax = new Pool({ connectionString: server.url, max: 2, options: "-c synchronous_commit=off" });
    onTestFinished(() => lax.end());
    const client = await lax.connect();
    await client.query("begin");
    const within = await newDriver(inside(client));
    await within.swap(anyTime([changeOf("durable", undefined, "one")]));
    const { rows } = await client.query("show synchronous_commit");
    await letGo(client, "commit");
    expect(rows).toEqual([{ synchronous_commit: "on" }]);
    expect((await lax.query("show synchronous_commit")).rows).toEqual([{ synchronous_commit: "off" }]);
  });

  test("a change that was confirmed over such a connection is on the disk", async () => {
    const lax = new Pool({ connectionString: server.url, max: 2, options: "-c synchronous_commit=off" });
    onTestFinished(() => lax.end());
    const over = await newDriver(lax, { listens: false });
    let nth = 0;
    // Something else may write between the two.
    await until("all that was written is flushed", async () => {
      await over.swap(anyTime([changeOf(`flushed-${nth++}`, undefined, "one")]));
      const { rows } = await pool.query(
        "select pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn() as is",
      );
      return rows[0].is;
    });
  });

  test("a change without grants to other processes notifies no session", async () => {
    const listener = await pool.connect();
    const heard: string[] = [];
    listener.on("notification", ({ payload }) => heard.push(payload ?? ""));
    const told: string[] = [];
    const end = await driver.listen?.("owner", (key, id, fence) => told.push(`${key} ${id} ${fence}`));
    const version = await write("quiet", undefined, "one");
    await driver.swap(
      anyTime([{ ...changeOf("quiet", version, "two"), wakes: [{ owner: "owner", id: "a", fence: 7n }] }]),
    );
    await until("the owner is told", async () => told.length > 0);
    expect([told, heard]).toEqual([["quiet a 7"], []]);
    end?.();
    listener.release(true);
  });
});
