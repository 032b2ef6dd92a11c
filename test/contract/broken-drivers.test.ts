/** Drivers that break one rule of docs/stores/writing-a-store.md each, and the test of the driver suite that finds it. */
import type { CasDriver, Change, ChangeResult, SwapBatch } from "holdfast/cas";
import { driverContract } from "holdfast/testing";
import { describe, expect, test } from "vitest";
import { MapDatabase, mapDriver } from "../../examples/driver/map-driver.ts";
import { runContract } from "./collecting-runner.ts";

type Alter = (inner: CasDriver, database: MapDatabase) => Partial<CasDriver>;

const ALWAYS = { earliestMs: 0, latestMs: Number.MAX_SAFE_INTEGER };

/** Makes some of the changes at any time, and the others correctly. */
function anyTime(inner: CasDriver, isAnyTime: (change: Change) => boolean) {
  return async (batch: SwapBatch) => {
    const results: ChangeResult[] = [];
    for (const change of batch.changes) {
      const window = isAnyTime(change) ? ALWAYS : {};
      results.push(...(await inner.swap({ ...batch, changes: [change], ...window })).results);
    }
    return { nowMs: (await inner.read([])).nowMs, results };
  };
}

/** Changes the answers of a correct driver. */
function answering(inner: CasDriver, answer: (result: ChangeResult) => ChangeResult) {
  return async (batch: SwapBatch) => {
    const { nowMs, results } = await inner.swap(batch);
    return { nowMs, results: results.map(answer) };
  };
}

/** The broken rule, the change that breaks it, and the test that finds it. */
const broken: readonly (readonly [string, Alter, string])[] = [
  [
    "records are made at any time",
    (inner) => ({ swap: anyTime(inner, ({ expected }) => expected === undefined) }),
    "time: neither a record nor a change of one is made after its time, alone or with others",
  ],
  [
    "records are changed at any time",
    (inner) => ({ swap: anyTime(inner, ({ expected }) => expected !== undefined) }),
    "time: neither a record nor a change of one is made before its time, alone or with others",
  ],
  [
    "a conflict does not bring the record along",
    (inner) => ({
      swap: answering(inner, (result) =>
        result.state === "conflict" ? { state: "conflict", current: undefined } : result,
      ),
    }),
    "swapping: only the version that is there can be replaced, through any driver, and a conflict brings it along",
  ],
  [
    "whatever is expected is there",
    (inner, { rows }) => ({
      swap: (batch) => {
        const changes = batch.changes.map((change) => ({
          ...change,
          expected: rows.get(change.key)?.version,
        }));
        return inner.swap({ ...batch, changes });
      },
    }),
    "swapping: of many swaps of one version at the same time, one succeeds",
  ],
  [
    "versions begin anew with a record",
    (inner, database) => ({
      swap: (batch) => {
        if (batch.changes.some(({ expected }) => expected === undefined)) database.versions = 0n;
        return inner.swap(batch);
      },
    }),
    "looking and cleaning: a record is removed when its time has passed, not before, and its versions do not come back",
  ],
  [
    "a comparison writes",
    (inner) => ({
      swap: (batch) => {
        const changes = batch.changes.map((change) => ({ ...change, text: change.text ?? "" }));
        return inner.swap({ ...batch, changes });
      },
    }),
    "swapping: a change without a text only compares",
  ],
  [
    "the time is told in seconds",
    (inner) => ({
      read: async (keys) => {
        const { nowMs, records } = await inner.read(keys);
        return { nowMs: nowMs / 1_000, records };
      },
    }),
    "time: every reply tells the server's time, and it goes on",
  ],
  [
    "a listing begins with the key that it goes on after",
    (inner) => ({ list: (prefix, after, limit) => inner.list(prefix, after?.slice(0, -1), limit) }),
    "looking and cleaning: a listing is ordered by the bytes of the keys, goes on after a key, and takes its prefix literally",
  ],
  [
    "all is swept",
    (_, { rows }) => ({
      sweep: async () => {
        const { size } = rows;
        rows.clear();
        return size;
      },
    }),
    "looking and cleaning: a record is removed when its time has passed, not before, and its versions do not come back",
  ],
  [
    "whoever listened goes on being told",
    (inner) => ({
      listen: async (owner, onWake) => {
        await inner.listen?.(owner, onWake);
        return () => {};
      },
    }),
    "waking: a wake-up gets to whoever listens for its owner, through any driver, until it is ended",
  ],
];

function failuresOf(alter: Alter): Promise<readonly string[]> {
  const open = async () => {
    const database = new MapDatabase();
    const driver = async () => {
      const inner = mapDriver(database);
      return { ...inner, ...alter(inner, database) };
    };
    return { driver, close: async () => {} };
  };
  return runContract((runner) => driverContract({ name: "driver", open }, runner)).then(
    ({ failed }) => failed,
  );
}

describe("the driver suite", () => {
  test("passes an intact driver", async () => {
    expect(await failuresOf(() => ({}))).toEqual([]);
  });

  test.each(broken)("finds a driver where %s", async (_, alter, toldBy) => {
    expect(await failuresOf(alter)).toContain(toldBy);
  });
});
