/** What becomes of the changes of a batch, and what a session keeps of it. */
import type { CasDriver, Change, ChangeResult, StoredRecord, Version } from "holdfast/cas";
import { type Connection, createConnection } from "mysql2/promise";
import { describe, expect, onTestFinished, test } from "vitest";
import { maxSwapBytes, swapStatement } from "../../../src/stores/mysql/statements.ts";
import { tableNames } from "../../../src/stores/mysql/table.ts";
import { canRunMariadb } from "../../engines/mariadb.ts";
import { Random } from "../../simulation/random.ts";
import { useDatabase } from "./database.ts";
import { changeOf, newDriver, swapNow } from "./new-driver.ts";

const HOUR_MS = 3_600_000;

test("mysql: the longest batch is within the limit that first use checks", () => {
  const changes = Array.from({ length: 256 }, (_, nth): Change => {
    const key = `${nth}`.padEnd(512, "k");
    const expected = `${nth}`.padStart(32, "f");
    const keepUntilMs = 8_640_000_000_000_000 - 1_000 * nth;
    return { ...changeOf(key, expected, "😀".repeat(100 + nth)), idle: nth % 2 === 0, keepUntilMs };
  });
  const recordBytes = changes.reduce((bytes, { text = "" }) => bytes + Buffer.byteLength(text), 0);
  const names = tableNames(`${"d".repeat(64)}.${"t".repeat(50)}`);
  const mixed = changes.map((change, nth) => (nth % 2 === 0 ? change : { ...change, expected: undefined }));
  for (const batch of [changes, mixed]) {
    const sql = swapStatement(names, { changes: batch, earliestMs: 0, latestMs: 1 }, "f".repeat(32));
    expect(sql.length).toBeLessThanOrEqual(maxSwapBytes(recordBytes, batch.length));
  }
});

describe.skipIf(!canRunMariadb())("mysql: swaps", () => {
  const database = useDatabase(["--max-allowed-packet=64M"]);

  async function write(driver: CasDriver, keys: readonly string[], text: string): Promise<Version> {
    const { results } = await swapNow(
      driver,
      keys.map((key) => changeOf(key, undefined, text)),
    );
    const [first] = results;
    if (first?.state !== "swapped") throw new Error(`${keys[0]} was not written: ${first?.state}`);
    return first.version;
  }

  async function rewrite(driver: CasDriver, key: string, expected: Version, text: string): Promise<Version> {
    const { results } = await swapNow(driver, [changeOf(key, expected, text)]);
    if (results[0]?.state !== "swapped") throw new Error(`${key} was not written: ${results[0]?.state}`);
    return results[0].version;
  }

  test("of many known keys, changed and removed ones bring back their records, and the rest is written", async () => {
    const [driver, other] = [newDriver(database.pool()), newDriver(database.pool())];
    const keys = Array.from({ length: 40 }, (_, nth) => `known ${nth}`);
    const first = await write(driver, keys.slice(0, 25), "one");
    const second = await write(driver, keys.slice(25), "one");
    const theirs = await rewrite(other, "known 7", first, "theirs");
    await database.admin("delete from holdfast_locks where lock_key = 'known 30'");

    const changes = keys.map((key, nth) => changeOf(key, nth < 25 ? first : second, `two ${key}`));
    const { results } = await swapNow(driver, changes);
    expect(results[7]).toEqual({ state: "conflict", current: { version: theirs, text: "theirs" } });
    expect(results[30]).toEqual({ state: "conflict", current: undefined });
    expect(results.filter(({ state }) => state === "swapped")).toHaveLength(38);
    const texts = (await other.read(keys)).records.map((record) => record?.text);
    const expected = keys.map((key) => `two ${key}`) as (string | undefined)[];
    expected[7] = "theirs";
    expected[30] = undefined;
    expect(texts).toEqual(expected);
  });

  test("the version that is expected of one key is nothing to another", async () => {
    const [driver, other] = [newDriver(database.pool()), newDriver(database.pool())];
    const old = await write(driver, ["pair a"], "one");
    const first = await write(driver, ["pair b"], "one");
    // Both have one version now, of which the first driver hears for one of them.
    const changes = [changeOf("pair a", old, "theirs"), changeOf("pair b", first, "theirs")];
    const both = (await swapNow(other, changes)).results[0] as Extract<ChangeResult, { state: "swapped" }>;
    const { results } = await swapNow(driver, [
      changeOf("pair a", old, "mine"),
      changeOf("pair b", both.version, "mine"),
    ]);
    expect(results).toEqual([
      { state: "conflict", current: { version: both.version, text: "theirs" } },
      { state: "swapped", version: expect.anything() },
    ]);
  });

  test.each([
    ["before", HOUR_MS],
    ["after", -HOUR_MS],
  ])("%s its time a batch writes nothing, and tells what it would have met", async (_, awayMs) => {
    const driver = newDriver(database.pool());
    const prefix = `away ${awayMs}`;
    const [known, changed, compared, absent] = ["a", "b", "c", "d"].map((name) => `${prefix} ${name}`) as [
      string,
      string,
      string,
      string,
    ];
    const version = await write(driver, [known, changed, compared], "one");
    const theirs = await rewrite(driver, changed, version, "theirs");
    const nowMs = Math.floor((await driver.read([])).nowMs);
    const { results } = await driver.swap({
      changes: [
        changeOf(absent, undefined, "two"),
        changeOf(compared, version, undefined),
        changeOf(changed, version, "two"),
        changeOf(known, version, "two"),
      ],
      earliestMs: nowMs + awayMs,
      latestMs: nowMs + awayMs + 1_000,
    });
    expect(results).toEqual([
      { state: "untimely" },
      { state: "same" },
      { state: "conflict", current: { version: theirs, text: "theirs" } },
      { state: "untimely" },
    ]);
    const { records } = await driver.read([known, changed, compared, absent]);
    expect(records.map((record) => record?.text)).toEqual(["one", "theirs", "one", undefined]);
  });

  test.each([1, 2, 3])("batches of all kinds behave like a map, seed %i", async (seed) => {
    const random = new Random(seed);
    const driver = newDriver(database.pool());
    const names = ["", "\u{10000}", "\u{ffff}", "é", "'", '"', "\\", ";", "a"];
    const keys = names.map((name) => `map ${seed} ${name}`);
    const model = new Map<string, StoredRecord>();
    const seen: Version[] = ["00".repeat(16)];
    for (let round = 0; round < 60; round++) {
      const changes = keys
        .filter(() => random.chance(0.6))
        .sort(() => random.next() - 0.5)
        .map((key, nth) => {
          const right = model.get(key)?.version;
          const expected = random.chance(0.7) ? right : seen[random.integer(-1, seen.length - 1)];
          const text = random.chance(0.7) ? `${seed} ${round} ${nth} '"\\;é😀` : undefined;
          return { ...changeOf(key, expected, text), idle: random.chance(0.5) };
        });
      if (changes.length === 0) continue;
      const { results } = await swapNow(driver, changes);
      for (const [nth, { key, expected, text }] of changes.entries()) {
        const result = results[nth];
        const current = model.get(key);
        if (current?.version !== expected) {
          expect(result).toEqual({ state: "conflict", current });
        } else if (text === undefined) {
          expect(result).toEqual({ state: "same" });
        } else {
          expect(result).toEqual({ state: "swapped", version: expect.any(String) });
          const { version } = result as Extract<ChangeResult, { state: "swapped" }>;
          model.set(key, { version, text });
          seen.push(version);
        }
      }
      expect((await driver.read(keys)).records).toEqual(keys.map((key) => model.get(key)));
      const idle = new Map(
        changes.map((change, nth) => [change.key, results[nth]?.state === "swapped" && change.idle]),
      );
      const listed = await driver.list(`map ${seed} `, undefined, 100);
      const used = new Set(listed.records.map(({ key }) => key));
      for (const [key, isIdle] of idle) if (isIdle) expect(used).not.toContain(key);
    }
    expect(model.size).toBeGreaterThan(5);
  });

  test("a session keeps nothing of a swap, whether it went well or not", async () => {
    const connection = await createConnection(database.server.url);
    onTestFinished(() => connection.end());
    await connection.query("set session innodb_lock_wait_timeout = 1");
    const driver = newDriver(connection as never);
    const version = await write(driver, ["kept"], "one");
    expect(await leftIn(connection)).toEqual({ text: null, errno: 1243 });

    const stale = [changeOf("kept", "00".repeat(16), "two")];
    expect((await swapNow(driver, stale)).results[0]?.state).toBe("conflict");
    expect(await leftIn(connection)).toEqual({ text: null, errno: 1243 });

    const other = await createConnection(database.server.url);
    onTestFinished(() => other.end());
    await other.query("start transaction");
    await other.query("select version from holdfast_locks where lock_key = 'kept' for update");
    await expect(swapNow(driver, [changeOf("kept", version, "two")])).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      cause: { errno: 1205 },
    });
    expect(await leftIn(connection)).toEqual({ text: null, errno: 1243 });
    await other.query("rollback");
    expect((await swapNow(driver, [changeOf("kept", version, "two")])).results[0]?.state).toBe("swapped");
  });

  /** The text of the last statement, and the error of running it once more. */
  async function leftIn(connection: Connection): Promise<{ text: unknown; errno: unknown }> {
    const [rows] = await connection.query("select @holdfast_swap as text");
    const error = await connection.query("execute holdfast_swap").catch((cause: unknown) => cause);
    return { text: (rows as { text: unknown }[])[0]?.text, errno: (error as { errno?: unknown }).errno };
  }

  test("a record may be as large as the option allows, and so may its replacement", async () => {
    const maxRecordBytes = 16_777_216;
    const driver = newDriver(database.pool(), maxRecordBytes);
    await driver.prepare?.();
    const [one, two] = ["1", "2"].map((digit) => digit.repeat(maxRecordBytes)) as [string, string];
    const version = await write(driver, ["large"], one);
    await rewrite(driver, "large", version, two);
    const { results } = await swapNow(driver, [changeOf("large", version, "3")]);
    const [result] = results as [Extract<ChangeResult, { state: "conflict" }>];
    expect(result.state).toBe("conflict");
    expect(result.current?.text === two).toBe(true);
  });
});
