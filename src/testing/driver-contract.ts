import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import type { CasDriver, Change, ChangeResult, SwapReply, Version } from "../stores/cas/index.ts";
import type { TestRunner } from "./contract/harness.ts";

/** The drivers of one test, as several processes have them, over one database. */
export interface DriverWorld {
  /** Another driver over the same database, on which `prepare` was called if it has one. */
  driver(): Promise<CasDriver>;
  /** Closes what was handed out. */
  close(): Promise<void>;
}

/** How the driver suite gets at a driver. */
export interface DriverHarness {
  /** The name under which the tests are reported. */
  readonly name: string;
  /** What the driver says in `checksTime`. Without it, the tests about time are skipped. Default true. */
  readonly checksTime?: boolean;
  /** Whether the driver has `listen`. Without it, the test about wake-ups is skipped. Default true. */
  readonly pushes?: boolean;
  /** Whether the driver has `sweep`. Without it, the test about removing is skipped. Default true. */
  readonly sweeps?: boolean;
  /** Opens what one test uses. Tests never share keys, so all of them may share one database. */
  open(): Promise<DriverWorld>;
}

/** One run of one test. */
class DriverTrial {
  readonly driver: CasDriver;
  readonly world: DriverWorld;
  /** What all keys of this test begin with, and no others. */
  readonly prefix = `driver:${randomUUID()}:`;

  constructor(driver: CasDriver, world: DriverWorld) {
    this.driver = driver;
    this.world = world;
  }

  key(name = "key"): string {
    return `${this.prefix}${name}`;
  }

  /** A change at the present time of the server. */
  async swap(changes: readonly Change[], driver = this.driver): Promise<SwapReply> {
    const { nowMs } = await driver.read([]);
    return driver.swap({
      changes,
      earliestMs: Math.floor(nowMs) - 60_000,
      latestMs: Math.ceil(nowMs) + 60_000,
    });
  }

  async swapOne(change: Change, driver = this.driver): Promise<ChangeResult> {
    const { results } = await this.swap([change], driver);
    assert.equal(results.length, 1);
    return results[0] as ChangeResult;
  }

  async write(
    key: string,
    expected: Version | undefined,
    text: string,
    driver = this.driver,
  ): Promise<Version> {
    const result = await this.swapOne(changeOf(key, expected, text), driver);
    assert.equal(result.state, "swapped");
    return result.version;
  }

  async textOf(key: string, driver = this.driver): Promise<string | undefined> {
    const { records } = await driver.read([key]);
    assert.equal(records.length, 1);
    return records[0]?.text;
  }
}

/**
 * Defines the suite for a driver of `casStore`: the rules of docs/stores/writing-a-store.md, one by one. A driver that
 * passes, and whose store passes `storeContract`, is done.
 *
 * @example
 * driverContract({ name: "mine", open: async () => openMyDrivers() }, vitest);
 */
export function driverContract(harness: DriverHarness, { describe, it }: TestRunner): void {
  const test = (name: string, body: (trial: DriverTrial) => Promise<void>, canRun = true) => {
    (canRun ? it : it.skip)(name, async () => {
      const world = await harness.open();
      try {
        await body(new DriverTrial(await world.driver(), world));
      } finally {
        await world.close();
      }
    });
  };
  const { checksTime = true, pushes = true, sweeps = true } = harness;

  describe(harness.name, () => {
    test("the harness tells the truth about the driver", async ({ driver }) => {
      assert.equal(driver.checksTime, checksTime, "checksTime");
      assert.equal(driver.listen !== undefined, pushes, "listen");
      assert.equal(driver.sweep !== undefined, sweeps, "sweep");
    });
    describe("swapping", () => swapping(test));
    describe("time", () => timing(test, checksTime));
    describe("looking and cleaning", () => looking(test, sweeps));
    describe("waking", () => waking(test, pushes));
  });
}

type Define = (name: string, body: (trial: DriverTrial) => Promise<void>, canRun?: boolean) => void;

function swapping(test: Define): void {
  test("a key without a record is read as such, and can be made once", async (trial) => {
    const key = trial.key();
    assert.equal(await trial.textOf(key), undefined);
    const version = await trial.write(key, undefined, "one");
    assert.equal(await trial.textOf(key), "one");
    expectConflict(await trial.swapOne(changeOf(key, undefined, "two")), version, "one");
    assert.equal(await trial.textOf(key), "one");
  });

  test("only the version that is there can be replaced, through any driver, and a conflict brings it along", async (trial) => {
    const [key, other] = [trial.key(), await trial.world.driver()];
    const first = await trial.write(key, undefined, "one");
    const second = await trial.write(key, first, "two", other);
    expectConflict(await trial.swapOne(changeOf(key, first, "three")), second, "two");
    expectConflict(await trial.swapOne(changeOf(trial.key("nothing"), first, "three")), undefined, undefined);
    assert.equal(await trial.textOf(key, other), "two");
    await trial.write(key, second, "three");
  });

  test("a version does not come back with its text", async (trial) => {
    const key = trial.key();
    const seen = new Set<Version>();
    let version: Version | undefined;
    for (let turn = 0; turn < 6; turn++) {
      version = await trial.write(key, version, turn % 2 === 0 ? "one" : "two");
      assert.ok(!seen.has(version), "a version was used twice");
      seen.add(version);
    }
  });

  test("a change without a text only compares", async (trial) => {
    const key = trial.key();
    assert.deepEqual(await trial.swapOne(changeOf(key, undefined, undefined)), { state: "same" });
    assert.equal(await trial.textOf(key), undefined);
    const version = await trial.write(key, undefined, "one");
    assert.deepEqual(await trial.swapOne(changeOf(key, version, undefined)), { state: "same" });
    expectConflict(await trial.swapOne(changeOf(key, undefined, undefined)), version, "one");
  });

  test("each change of a batch stands for itself, and is answered in its place", async (trial) => {
    const keys = Array.from({ length: 40 }, (_, index) => trial.key(`${index}`));
    await Promise.all(keys.slice(20).map((key) => trial.write(key, undefined, "taken")));
    const { results } = await trial.swap(keys.map((key) => changeOf(key, undefined, `new ${key}`)));
    assert.deepEqual(
      results.map(({ state }) => state),
      keys.map((_, index) => (index < 20 ? "swapped" : "conflict")),
    );
    const { records } = await trial.driver.read([...keys].reverse());
    const texts = records.map((record) => record?.text).reverse();
    assert.deepEqual(
      texts,
      keys.map((key, index) => (index < 20 ? `new ${key}` : "taken")),
    );
  });

  test("of many swaps of one version at the same time, one succeeds", async (trial) => {
    const key = trial.key();
    const drivers = [trial.driver, await trial.world.driver(), await trial.world.driver()];
    let version: Version | undefined;
    for (let round = 0; round < 5; round++) {
      const swaps = Array.from({ length: 12 }, (_, index) => {
        const change = changeOf(key, version, `${round} ${index}`);
        return trial.swapOne(change, drivers[index % drivers.length]);
      });
      const results = await Promise.all(swaps);
      const won = results.filter((result) => result.state === "swapped");
      assert.equal(won.length, 1, `${won.length} of 12 swaps succeeded`);
      assert.ok(results.every(({ state }) => state === "swapped" || state === "conflict"));
      version = won[0]?.version;
      const index = results.findIndex(({ state }) => state === "swapped");
      assert.equal(await trial.textOf(key), `${round} ${index}`);
    }
  });

  test("batches that overlap in any order neither fail nor wait for each other for ever", async (trial) => {
    const keys = Array.from({ length: 10 }, (_, index) => trial.key(`${index}`));
    const batches = Array.from({ length: 10 }, (_, turn) => {
      const order = turn % 2 === 0 ? keys : [...keys].reverse();
      return trial.swap(order.map((key) => changeOf(key, undefined, `${turn}`)));
    });
    const states = (await Promise.all(batches)).flatMap(({ results }) => results.map(({ state }) => state));
    assert.equal(states.filter((state) => state === "swapped").length, keys.length);
  });

  test("texts and keys of every kind come back as they were written", async (trial) => {
    const text = JSON.stringify({ text: "é\u2028😀\"\\'%_\u0000", long: "x".repeat(200_000) });
    const names = ["a", "A", "a ", "á", "a\u0301", "😀", "%", "_", "'\"\\", "k".repeat(400)];
    for (const name of names) await trial.write(trial.key(name), undefined, `${name} ${text}`);
    const { records } = await trial.driver.read(names.map((name) => trial.key(name)));
    for (const [index, name] of names.entries()) assert.equal(records[index]?.text, `${name} ${text}`);
  });
}

function timing(test: Define, checksTime: boolean): void {
  test("every reply tells the server's time, and it goes on", async (trial) => {
    const before = (await trial.driver.read([])).nowMs;
    const swapped = (await trial.swap([changeOf(trial.key(), undefined, "one")])).nowMs;
    const listed = (await trial.driver.list(trial.prefix, undefined, 1)).nowMs;
    assert.ok(before > Date.UTC(2020, 0, 1), `nowMs is ${before}, which is no time in milliseconds`);
    assert.ok(before <= swapped && swapped <= listed, `${before}, ${swapped} and ${listed} do not grow`);
    assert.ok(listed - before < 60_000);
  });

  const windows: readonly [string, number, number][] = [
    ["before its time", 60_000, 120_000],
    ["after its time", -120_000, -60_000],
  ];
  for (const [when, fromMs, toMs] of windows) {
    test(
      `neither a record nor a change of one is made ${when}, alone or with others`,
      async (trial) => {
        const [absent, present] = [trial.key("absent"), trial.key("present")];
        const version = await trial.write(present, undefined, "one");
        const nowMs = Math.floor((await trial.driver.read([])).nowMs);
        const [making, changing] = [changeOf(absent, undefined, "one"), changeOf(present, version, "two")];
        for (const changes of [[making], [changing], [making, changing]]) {
          const window = { earliestMs: nowMs + fromMs, latestMs: nowMs + toMs };
          const { results } = await trial.driver.swap({ changes, ...window });
          assert.deepEqual(
            results,
            changes.map(() => ({ state: "untimely" })),
          );
          assert.equal(await trial.textOf(absent), undefined);
          assert.equal(await trial.textOf(present), "one");
        }
        // Nor has it another version.
        await trial.write(present, version, "three");
      },
      checksTime,
    );
  }
}

function looking(test: Define, sweeps: boolean): void {
  test("a listing is ordered by the bytes of the keys, goes on after a key, and takes its prefix literally", async (trial) => {
    const names = ["b", "a", "B", "a_", "a%", "ab", "á", "\uFB00", "\u{1F600}", "a\\"];
    for (const name of names) await trial.write(trial.key(name), undefined, name);
    const sorted = [...names].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    const listed = async (prefix: string, after: string | undefined, limit: number) => {
      const from = after === undefined ? undefined : trial.key(after);
      const { records } = await trial.driver.list(trial.key(prefix), from, limit);
      return records.map(({ key, text }) => {
        assert.equal(key, trial.key(text));
        return text;
      });
    };
    assert.deepEqual(await listed("", undefined, 100), sorted);
    assert.deepEqual(await listed("", undefined, 3), sorted.slice(0, 3));
    assert.deepEqual(await listed("", sorted[2], 4), sorted.slice(3, 7));
    assert.deepEqual(await listed("", sorted.at(-1), 4), []);
    for (const prefix of ["a", "a_", "a%", "a\\", "B", "á"]) {
      assert.deepEqual(
        await listed(prefix, undefined, 100),
        sorted.filter((name) => name.startsWith(prefix)),
        `the prefix is "${prefix}"`,
      );
    }
  });

  test(
    "a record is removed when its time has passed, not before, and its versions do not come back",
    async (trial) => {
      const nowMs = Math.floor((await trial.driver.read([])).nowMs);
      const [old, young] = [trial.key("old"), trial.key("young")];
      const over = { idle: true, keepUntilMs: nowMs - 1_000 };
      const first = await trial.swapOne({ ...changeOf(old, undefined, "one"), ...over });
      await trial.swapOne({ ...changeOf(young, undefined, "one"), idle: true, keepUntilMs: nowMs + 600_000 });
      // There may be others to be removed, of other tests.
      for (let swept = 1; swept > 0; ) swept = (await trial.driver.sweep?.(1_000)) ?? 0;
      assert.equal(await trial.textOf(old), undefined);
      assert.equal(await trial.textOf(young), "one");
      assert.ok(first.state === "swapped");
      assert.notEqual(await trial.write(old, undefined, "one"), first.version);
      const stale = await trial.swapOne(changeOf(old, first.version, "stale"));
      assert.equal(stale.state, "conflict");
    },
    sweeps,
  );
}

function waking(test: Define, pushes: boolean): void {
  test(
    "a wake-up gets to whoever listens for its owner, through any driver, until it is ended",
    async (trial) => {
      const key = trial.key();
      const other = await trial.world.driver();
      const told: string[] = [];
      const owner = (name: string) => `${trial.prefix}${name}`;
      const end = await other.listen?.(owner("me"), (woken, id, fence = 7n) =>
        told.push(`${woken} ${id} ${fence}`),
      );
      const wake = (id: string, name: string) => ({ owner: owner(name), id, fence: 7n });
      const wakes = [wake("a", "me"), wake("b", "somebody"), wake("c", "me")];
      const first = await trial.swapOne({ ...changeOf(key, undefined, "one"), wakes });
      assert.equal(first.state, "swapped");
      await until(() => told.length >= 2);
      assert.deepEqual(told.sort(), [`${key} a 7`, `${key} c 7`]);
      // A change that is not made wakes nobody.
      await trial.swapOne({ ...changeOf(key, undefined, "two"), wakes: [wake("d", "me")] });
      end?.();
      await trial.swapOne({ ...changeOf(key, first.version, "two"), wakes: [wake("e", "me")] });
      await new Promise((resolve) => setTimeout(resolve, 100));
      assert.equal(told.length, 2);
    },
    pushes,
  );
}

function changeOf(key: string, expected: Version | undefined, text: string | undefined): Change {
  const keepUntilMs = Date.now() + 86_400_000;
  return { key, expected, text, idle: false, keepUntilMs, dropped: [], wakes: [] };
}

function expectConflict(result: ChangeResult, version: Version | undefined, text: string | undefined): void {
  assert.equal(result.state, "conflict");
  assert.deepEqual([result.current?.version, result.current?.text], [version, text]);
}

async function until(check: () => boolean): Promise<void> {
  for (let turn = 0; turn < 500 && !check(); turn++) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.ok(check(), "it did not come about");
}
