/**
 * What a process has changed while it was alone is in the log, and not in the tables of `live.mdb`. Nobody else notices: several processes that do
 * one thing after the other, in any order, all see one truth, whoever fails or is killed in between.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Request } from "../../../src/stores/file/protocol.ts";
import { Random } from "../../simulation/random.ts";
import { testFolder } from "./folders.ts";
import { letter, type Wish } from "./letters.ts";
import { changeLiveNumber, LIVE_SUM, rowCounts, settledUpTo } from "./raw-files.ts";
import { Told, type ToldOptions } from "./told.ts";

/** Alone from the first transaction on, so that nothing is put into the tables unless somebody needs it there. */
const ALONE: ToldOptions = { aloneAfter: 0 };

async function changeOften(process: Told, key: string, times: number): Promise<number> {
  let version = 0;
  for (let time = 1; time <= times; time++) {
    const [outcome] = await process.swap([{ key, text: `text ${time}`, expected: version }]);
    version = outcome as number;
  }
  return version;
}

describe("file: what a process has changed while it was alone", () => {
  test("is put into the tables when another process comes, and not before", async () => {
    const folder = testFolder();
    const first = await Told.start(folder, ALONE);
    const version = await changeOften(first, "key", 20);
    expect(await rowCounts(folder)).toMatchObject({ records: 0, ends: 0 });
    const second = await Told.start(folder, ALONE);
    expect(await second.rows(["key"])).toEqual([{ version, text: "text 20" }]);
    expect(await rowCounts(folder)).toMatchObject({ records: 1, ends: 1 });
  });

  test("is what the next one goes on from, and the former one after that", async () => {
    const folder = testFolder();
    const first = await Told.start(folder, ALONE);
    const second = await Told.start(folder, ALONE);
    let version = 0;
    for (let turn = 0; turn < 10; turn++) {
      for (const process of [first, second]) {
        const [stale] = await process.swap([{ key: "key", text: "stale", expected: version - 1 }]);
        if (version > 0) expect(stale).toMatchObject({ current: { version } });
        for (let time = 0; time < 3; time++) {
          const [outcome] = await process.swap([{ key: "key", text: `${turn} ${time}`, expected: version }]);
          expect(outcome).toBeGreaterThan(version);
          version = outcome as number;
        }
      }
    }
    expect(await rowCounts(folder)).toMatchObject({ records: 1, ends: 1 });
  });

  test("is found by others when it was killed", async () => {
    const folder = testFolder();
    const first = await Told.start(folder, ALONE);
    const second = await Told.start(folder, ALONE);
    const version = await changeOften(first, "key", 5);
    await first.kill();
    expect(await second.rows(["key"])).toEqual([{ version, text: "text 5" }]);
  });

  test("is put into the tables when it has become much", async () => {
    const folder = testFolder();
    const first = await Told.start(folder, { aloneAfter: 0, unsettledBytes: 1_000 });
    await changeOften(first, "key", 50);
    expect(await rowCounts(folder)).toMatchObject({ records: 1, ends: 1 });
  });

  test("goes into the tables at once as long as others may be there", async () => {
    const folder = testFolder();
    const first = await Told.start(folder, { aloneAfter: 3 });
    await changeOften(first, "a", 1);
    expect(await rowCounts(folder)).toMatchObject({ records: 1 });
    await changeOften(first, "b", 3);
    await changeOften(first, "c", 1);
    expect(await rowCounts(folder)).toMatchObject({ records: 2 });
  });

  test.each(["failEarly", "failLate"] as const)(
    "is not what a transaction did that failed: %s",
    async (deed) => {
      const folder = testFolder();
      const first = await Told.start(folder, ALONE);
      const version = await changeOften(first, "key", 3);
      const failing = letter(1, [
        { key: "key", text: "failed", expected: version },
        { key: "other", text: "failed" },
      ]);
      await expect(first.does(deed, failing.request)).rejects.toThrow("failed on purpose");
      expect(await first.rows(["key", "other"])).toEqual([{ version, text: "text 3" }, undefined]);
      const [next] = await first.swap([{ key: "key", text: "next", expected: version }]);
      const second = await Told.start(folder, ALONE);
      expect(await second.rows(["key", "other"])).toEqual([{ version: next, text: "next" }, undefined]);
    },
  );

  test("is told to be damaged where the log has lost some of it", async () => {
    const folder = testFolder();
    const first = await Told.start(folder, ALONE);
    const second = await Told.start(folder, ALONE);
    await changeOften(first, "key", 5);
    for (const name of ["log-0", "log-1"]) {
      const log = readFileSync(join(folder, name));
      writeFileSync(join(folder, name), log.fill(0xff, 20, 40));
    }
    await expect(second.rows(["key"])).rejects.toThrow(/of log \d+, 0 of \d+ bytes are whole/);
    // Nothing was made of it, and whoever has it in memory knows it still.
    expect(await rowCounts(folder)).toMatchObject({ records: 0 });
    expect(await first.rows(["key"])).toMatchObject([{ text: "text 5" }]);
  });

  // (1) P has a new row in front. (2) Q reads, and so puts it into the tables, with an entry that says when to look at it again. (3) P goes on: it
  // would add another entry, as for a row that is new.
  test("is new in the tables once, also where others have put it there meanwhile", async () => {
    const folder = testFolder();
    const first = await Told.start(folder, ALONE);
    const second = await Told.start(folder, ALONE);
    const [version] = await first.swap([{ key: "key", text: "new", keepUntilMs: 1e14 }]);
    await second.rows(["key"]);
    await first.swap([{ key: "key", text: "old", expected: version as number, keepUntilMs: 2e14 }]);
    expect(await first.list()).toEqual({ key: "old" });
    expect(await rowCounts(folder)).toMatchObject({ records: 1, ends: 1 });
  });

  // (1) P's commit fails, and it is not told. (2) Q's next change is as long. (3) P takes what it had in front for true.
  test("is not true where the log has another sum", async () => {
    const folder = testFolder();
    const first = await Told.start(folder, ALONE);
    await changeOften(first, "key", 5);
    await changeLiveNumber(folder, LIVE_SUM, 4_711);
    await expect(first.rows(["key"])).rejects.toThrow("bytes are whole");
  });

  test.each<Request>([
    { verb: "register", owner: "owner", socket: "socket" },
    { verb: "list", prefix: "", after: undefined, limit: 10 },
    { verb: "sweep", limit: 10 },
  ])("is put into the tables with what looks at them, or is never in front: $verb", async (request) => {
    const folder = testFolder();
    const first = await Told.start(folder, ALONE);
    await changeOften(first, "key", 2);
    expect(await rowCounts(folder)).toMatchObject({ records: 0 });
    await first.does("answer", request);
    expect(await rowCounts(folder)).toMatchObject({ records: 1 });
    // Nobody else has to look for it.
    const { end, settledEnd } = await settledUpTo(folder);
    expect(settledEnd).toBe(end);
  });

  test("is put into the tables together with what was removed in the same transaction", async () => {
    const folder = testFolder();
    const first = await Told.start(folder, ALONE);
    const second = await Told.start(folder, ALONE);
    await first.swap([{ key: "over", text: "over", keepUntilMs: 1 }]);
    await first.does("answer", { verb: "register", owner: "owner", socket: "socket" });
    await first.does("answerAll", [
      { verb: "sweep", limit: 10 },
      { verb: "forget", socket: "socket" },
      letter(1, [{ key: "key", text: "text" }]).request,
    ]);
    expect(await second.rows(["over", "key"])).toMatchObject([undefined, { text: "text" }]);
    expect(await second.list()).toEqual({ key: "text" });
    expect(await second.does("answer", { verb: "sockets" })).toEqual({ sockets: [] });
  });

  // For each of them room is kept on the disk.
  test("is put into the tables when it is of many keys", async () => {
    const folder = testFolder();
    const first = await Told.start(folder, ALONE);
    const counts: number[] = [];
    for (let time = 0; time < 6; time++) {
      await first.swap(Array.from({ length: 100 }, (_, nth) => ({ key: `${time} ${nth}`, text: "text" })));
      counts.push((await rowCounts(folder)).records);
    }
    expect(counts).toEqual([0, 0, 300, 300, 300, 600]);
  });

  // What conflicts is not in the log, but stays in memory with the rows that were changed by the same request.
  test("keeps no more of requests in memory than may be left to the log", async () => {
    const folder = testFolder();
    const first = await Told.start(folder, { aloneAfter: 0, unsettledBytes: 100_000 });
    const large = "x".repeat(60_000);
    const counts: number[] = [];
    for (let time = 0; time < 4; time++) {
      await first.swap([
        { key: "large", text: large, expected: 7 },
        { key: `small ${time}`, text: "small" },
      ]);
      counts.push((await rowCounts(folder)).records);
    }
    expect(counts).toEqual([0, 2, 2, 4]);
  });

  test(
    "is there in histories of several processes that fail and are killed",
    async () => {
      const seen: Seen = { kills: 0, unknown: 0, failures: 0, conflicts: 0, swept: 0, tidied: 0 };
      for (let seed = 1; seed <= HISTORIES; seed++) await playHistory(seed, seen);
      // By the seeds, all but for how a kill and its deed meet.
      for (const [what, count] of Object.entries(seen)) expect(count, what).toBeGreaterThan(5);
    },
    HISTORIES * 20_000,
  );
});

/** For a longer search, say how many with `SETTLING_HISTORIES`. */
const HISTORIES = Number(process.env["SETTLING_HISTORIES"] ?? 2);

type Seen = Record<"kills" | "unknown" | "failures" | "conflicts" | "swept" | "tidied", number>;

const KEYS = ["a", "b", "c", "d", "schlüssel", "f"];
const STEPS = 400;

/** Random deeds of three processes, one after the other, beside a plain model of what is true. */
async function playHistory(seed: number, seen: Seen): Promise<void> {
  const random = new Random(seed);
  const folder = testFolder();
  const start = () =>
    Told.start(folder, {
      aloneAfter: random.pick([0, 0, 1, 4]),
      unsettledBytes: random.pick([300, 2_000, 100_000]),
      logBytes: random.pick([1_500, 6_000, 100_000]),
    });
  const processes = [await start(), await start(), await start()];
  /** What is true. */
  let rows: Rows = new Map();
  let mine = 0;
  for (let step = 0; step < STEPS; step++) {
    // Often the same one again, which then is alone for a while.
    if (random.chance(0.3)) mine = random.integer(0, processes.length - 1);
    const process = processes[mine] as Told;
    const wishes = wishesOf(random, rows, step);
    const { request } = letter(step, wishes);
    const roll = random.integer(1, 100);
    if (roll <= 60) {
      const outcomes = await process.swap(wishes);
      for (const [place, wish] of wishes.entries()) {
        const { key, text, expected = 0 } = wish;
        const outcome = outcomes[place];
        const before = rows.get(key);
        if (expected === (before?.version ?? 0)) {
          expect(outcome, `seed ${seed}, step ${step}`).toBeTypeOf("number");
          rows.set(key, { version: outcome as number, text, isOver: wish.keepUntilMs !== undefined });
        } else {
          seen.conflicts += 1;
          const { version, text } = before ?? {};
          expect(outcome).toEqual({ current: before === undefined ? undefined : { version, text } });
        }
      }
    } else if (roll <= 68) {
      seen.failures += 1;
      const deed = random.pick(["failEarly", "failLate"] as const);
      const right = wishes.map((wish) => ({ ...wish, expected: rows.get(wish.key)?.version ?? 0 }));
      const failing = process.does(deed, letter(step, right).request);
      await expect(failing).rejects.toThrow("failed on purpose");
    } else if (roll <= 70) {
      seen.kills += 1;
      const before = rows;
      if (random.chance(0.5)) {
        // Whether it was done is not known: it is done whole, or not at all.
        seen.unknown += 1;
        void process.does("answer", request);
      }
      await process.kill();
      processes[mine] = await start();
      rows = await foundAfter(before, wishes, processes[(mine + 1) % processes.length] as Told);
    } else if (roll <= 75) {
      const { removed } = (await process.does("answer", { verb: "sweep", limit: 100 })) as {
        removed: number;
      };
      const over = [...rows].filter(([, { isOver }]) => isOver);
      expect(removed).toBe(over.length);
      seen.swept += removed;
      for (const [key] of over) rows.delete(key);
    } else if (roll <= 80) {
      seen.tidied += 1;
      await process.does("tidy");
    } else if (roll <= 85) await process.does("flush");
    else if (roll <= 90) expect(await process.list(), `seed ${seed}, step ${step}`).toEqual(textsIn(rows));
    else {
      const found = await process.rows(KEYS);
      expect(found, `seed ${seed}, step ${step}`).toEqual(KEYS.map((key) => shown(rows.get(key))));
    }
  }
  // What has failed with its entry in the log may come about as long as nobody writes another in its place.
  const [last] = await (processes[0] as Told).swap([{ key: "last", text: "last" }]);
  rows.set("last", { version: last as number, text: "last", isOver: false });
  for (const process of processes) expect(await process.list()).toEqual(textsIn(rows));
  for (const process of processes) await process.close();
  expect(await rowCounts(folder)).toMatchObject({ records: rows.size, ends: rows.size });
  const later = await start();
  expect(await later.list()).toEqual(textsIn(rows));
  await later.close();
}

type Rows = Map<string, { version: number; text: string; isOver: boolean }>;

function shown(row: { version: number; text: string } | undefined) {
  return row === undefined ? undefined : { version: row.version, text: row.text };
}

function textsIn(rows: Rows): Readonly<Record<string, string>> {
  return Object.fromEntries([...rows].map(([key, { text }]) => [key, text]));
}

/** One to three changes, of which most expect what is there. */
function wishesOf(random: Random, rows: Rows, step: number): Wish[] {
  const first = random.integer(0, KEYS.length - 1);
  return Array.from({ length: random.integer(1, 3) }, (_, nth) => {
    const key = KEYS[(first + nth) % KEYS.length] as string;
    const expected = random.chance(0.9) ? (rows.get(key)?.version ?? 0) : 7;
    const text = `${step} `.repeat(random.integer(1, 40));
    // A record is never kept for less than it was to be kept before.
    const mayEnd = rows.get(key)?.isOver ?? true;
    return { key, text, expected, ...(mayEnd && random.chance(0.8) ? { keepUntilMs: 1 } : {}) };
  });
}

/** What is true after somebody was killed who may have done this before. */
async function foundAfter(before: Rows, wishes: readonly Wish[], process: Told): Promise<Rows> {
  const found = await process.rows(KEYS);
  const rows: Rows = new Map();
  let done = 0;
  for (const [place, key] of KEYS.entries()) {
    const row = found[place];
    const was = before.get(key);
    if (row?.version === was?.version) {
      expect(shown(row)).toEqual(shown(was));
      if (was !== undefined) rows.set(key, was);
      continue;
    }
    const wish = wishes.find((each) => each.key === key);
    expect(row?.text).toBe(wish?.text);
    done++;
    rows.set(key, {
      version: row?.version ?? 0,
      text: row?.text ?? "",
      isOver: wish?.keepUntilMs !== undefined,
    });
  }
  const possible = wishes.filter(({ key, expected = 0 }) => expected === (before.get(key)?.version ?? 0));
  expect([0, possible.length]).toContain(done);
  return rows;
}
