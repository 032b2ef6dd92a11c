/**
 * What a machine that loses its power has afterwards. The disk is reckoned: a commit puts its data there and all that came before it,
 * and a flush all. What makes the latest commit count is in one of the first two pages of the file.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fdatasyncSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";
import * as lmdb from "lmdb";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { Database } from "../../../src/stores/file/database.js";
import { newGate } from "../../../src/stores/file/gate.js";
import { answerLetters } from "../../../src/stores/file/letters.js";
import type { Answer, Letter, Post, ReadReply, SwapReply } from "../../../src/stores/file/protocol.ts";
import { Random } from "../../simulation/random.ts";
import { testFolder } from "./folders.ts";
import { letter, reading } from "./letters.ts";

vi.mock("node:fs", async (original) => {
  const fs = await original<typeof import("node:fs")>();
  return { ...fs, fdatasyncSync: vi.fn(fs.fdatasyncSync), writeSync: vi.fn(fs.writeSync) };
});

afterEach(() => {
  vi.mocked(fdatasyncSync).mockReset();
  vi.mocked(writeSync).mockReset();
});

const PAGE_BYTES = 4_096;
const KEYS = ["a", "b", "c", "d", "e", "f"];
const failedFlush = () => Object.assign(new Error("EIO: i/o error, fdatasync"), { code: "EIO" });

/** One of the two pages of which one says what the latest commit is: what the disk has, and what the system takes it to have. */
interface Head {
  onDisk: Buffer;
  /** The system failed to write it, and takes it for written until somebody changes it. */
  isForgotten: boolean;
}

/** Whether a write begins where the file does, and not where it grows. */
function isOfHeads([, , , , position]: readonly unknown[]): boolean {
  return position === 0;
}

/** A database of which it is known what the disk has. */
async function onDisk() {
  const path = join(testFolder(), "locks.mdb");
  let database = await Database.open(lmdb, path, Date.now());
  onTestFinished(() => database.close());
  const headsNow = () => {
    const file = readFileSync(path);
    return [0, 1].map((page) => file.subarray(page * PAGE_BYTES, (page + 1) * PAGE_BYTES));
  };
  const heads: Head[] = headsNow().map((page) => ({ onDisk: page, isForgotten: false }));
  const flushed = (present: readonly Buffer[]) => {
    for (const [page, head] of heads.entries()) if (!head.isForgotten) head.onDisk = present[page] as Buffer;
  };
  let failures = 0;
  let isElsewhere = false;
  vi.mocked(fdatasyncSync).mockImplementation(() => {
    if (isElsewhere) return;
    if (failures === 0) return flushed(headsNow());
    failures--;
    for (const [page, now] of headsNow().entries()) {
      const head = heads[page] as Head;
      if (!now.equals(head.onDisk)) head.isForgotten = true;
    }
    throw failedFlush();
  });
  const { writeSync: write } = await vi.importActual<typeof import("node:fs")>("node:fs");
  vi.mocked(writeSync).mockImplementation((...args: Parameters<typeof write>) => {
    if (!isElsewhere && isOfHeads(args)) for (const head of heads) head.isForgotten = false;
    return write(...args);
  });
  const image = () => {
    const file = readFileSync(path);
    for (const [page, head] of heads.entries()) head.onDisk.copy(file, page * PAGE_BYTES);
    return file;
  };
  /** What the disk had in the middle of each commit. */
  const midway: Buffer[] = [];
  const watch = () => {
    const transact = database.transact.bind(database);
    database.transact = (work) => {
      const before = headsNow();
      const result = transact(work);
      const after = headsNow();
      if (after.every((page, index) => page.equals(before[index] as Buffer))) return result;
      // Its data may get there before what else was written, and both are there when it counts.
      midway.push(image());
      flushed(before);
      for (const [page, head] of heads.entries()) {
        if (!(after[page] as Buffer).equals(before[page] as Buffer)) head.isForgotten = false;
      }
      return result;
    };
  };
  watch();
  return {
    get database() {
      return database;
    },
    /** So many flushes fail from now on. */
    fail(count: number) {
      failures = count;
    },
    async openAnew() {
      failures = 0;
      await database.close();
      database = await Database.open(lmdb, path, Date.now());
      watch();
    },
    /** The file that is there when the power is lost now. */
    image,
    midway,
    /** The texts that are there when the power is back. */
    async textsIn(image: Buffer): Promise<string> {
      isElsewhere = true;
      const copy = join(testFolder(), "locks.mdb");
      writeFileSync(copy, image);
      const found = await Database.open(lmdb, copy, Date.now());
      const records = recordsOf(found);
      // Whatever is done next finds the file whole.
      const next = KEYS.map((key, index) => ({ key, text: "later", expected: records[index]?.version ?? 0 }));
      const { outcomes } = found.transact(() => found.answer(letter(0, next).request)) as SwapReply;
      expect(outcomes.every((outcome) => typeof outcome === "number")).toBe(true);
      await found.close();
      isElsewhere = false;
      return textsOf(records);
    },
  };
}

function textsOf(rows: ReadReply["rows"]): string {
  return JSON.stringify(rows.map((row) => row?.text));
}

function recordsOf(database: Database) {
  return (database.transact(() => database.answer(reading(0, KEYS).request)) as ReadReply).rows;
}

/** Random letters, with the power lost at every answer. `failing`: how often flushes fail. */
async function loseOften(failing: number) {
  const random = new Random(7);
  const disk = await onDisk();
  let records = recordsOf(disk.database);
  /** What the records were after each round. */
  const states = [textsOf(records)];
  let confirmed = 0;
  let lost = 0;
  let reopened = 0;
  for (let round = 1; round <= 80; round++) {
    const letters: Letter[] = [];
    for (const [place, key] of KEYS.entries()) {
      if (!random.chance(0.4)) continue;
      const mayBeLost = random.chance(0.6);
      const text = `${mayBeLost ? "given back" : "held"} ${round}`;
      letters.push(
        letter(
          letters.length,
          [{ key, text, expected: records[place]?.version ?? 0 }],
          mayBeLost ? 0 : undefined,
        ),
      );
    }
    if (random.chance(0.2)) letters.push(reading(letters.length, KEYS));
    if (random.chance(failing)) disk.fail(random.integer(1, 2));
    const images: { readonly isFirm: boolean; readonly image: Buffer }[] = [];
    const isUsable = answerLetters(disk.database, letters, (answers) => {
      const isFirm = answers.some(
        ({ number, failure }) => failure === undefined && !isLossy(letters[number]),
      );
      images.push({ isFirm, image: disk.image() });
    });
    if (!isUsable) {
      reopened++;
      await disk.openAnew();
    }
    disk.fail(0);
    records = recordsOf(disk.database);
    states.push(textsOf(records));
    for (const image of disk.midway.splice(0)) {
      expect(states.slice(confirmed)).toContain(await disk.textsIn(image));
    }
    for (const { isFirm, image } of images) {
      if (isFirm) confirmed = round;
      // A prefix of what happened, with everything that was confirmed.
      const texts = await disk.textsIn(image);
      expect(states.slice(confirmed)).toContain(texts);
      if (texts !== states[round]) lost++;
    }
  }
  return { lost, reopened };
}

describe("file: a loss of power", () => {
  test("takes back nothing that was confirmed, but for what only gives back what ends soon", async () => {
    expect((await loseOften(0)).lost).toBeGreaterThan(5);
  });

  test("finds the file whole, and all that was confirmed, also where flushes have failed", async () => {
    const { lost, reopened } = await loseOften(0.3);
    expect(lost).toBeGreaterThan(5);
    expect(reopened).toBeGreaterThan(5);
  });

  test("takes back nothing that anybody has seen, also of a process that was killed before it flushed", async () => {
    const folder = testFolder();
    const database = await Database.open(lmdb, join(folder, "locks.mdb"), Date.now());
    onTestFinished(() => database.close());
    vi.mocked(fdatasyncSync).mockClear();
    const seen: (readonly [text: string | undefined, flushes: number])[] = [];
    const look = (number: number) =>
      answerLetters(database, [reading(number, ["theirs"])], ([answer]) => {
        const { rows } = (answer as Answer).reply as ReadReply;
        seen.push([rows[0]?.text, vi.mocked(fdatasyncSync).mock.calls.length]);
      });
    look(1);
    const program = join(import.meta.dirname, "committing-process.ts");
    const killed = spawn(process.execPath, ["--import=tsx", program, folder]);
    expect((await once(killed, "exit"))[1]).toBe("SIGKILL");
    look(2);
    look(3);
    // Once is enough, while nobody writes.
    expect(seen).toEqual([
      [undefined, 1],
      ["held", 2],
      ["held", 2],
    ]);
  });

  test("a release that meets a conflict tells of it when that is on the disk", async () => {
    const { database } = await onDisk();
    vi.mocked(fdatasyncSync).mockClear();
    const flushes: number[] = [];
    const ask = (asked: Letter) =>
      answerLetters(database, [asked], () => flushes.push(vi.mocked(fdatasyncSync).mock.calls.length));
    ask(letter(1, [{ key: "a", text: "given back" }], 0));
    ask(letter(2, [{ key: "a", text: "given back twice" }], 0));
    expect(flushes).toEqual([0, 1]);
  });

  test("a release waits where what it gives back ends long after the time that the disk knows", async () => {
    const { database } = await onDisk();
    const flushes = () => vi.mocked(fdatasyncSync).mock.calls.length;
    const isEarly = (asked: Letter) => {
      const before = flushes();
      let during = before;
      answerLetters(database, [asked], () => {
        during = flushes();
      });
      return during === before;
    };
    isEarly(letter(1, [{ key: "a", text: "held" }]));
    // From this time the folder would go on after a loss of power.
    const keptMs = database.nowMs();
    expect(isEarly(letter(2, [{ key: "b", text: "given back" }], keptMs + 60_000))).toBe(false);
    expect(isEarly(letter(3, [{ key: "c", text: "given back" }], keptMs))).toBe(true);
  });

  test("a commit that fails is tried again when what came before it is on the disk, or not at all", async () => {
    const { database, fail } = await onDisk();
    const failOnce = () => {
      const { transact } = database;
      database.transact = () => {
        database.transact = transact;
        throw failedFlush();
      };
    };
    const posts: (readonly Answer[])[] = [];
    const ask = (...asked: Letter[]) => answerLetters(database, asked, (answers) => posts.push(answers));
    const two = (text: string) => [letter(1, [{ key: "a", text }]), letter(2, [{ key: "b", text }])];
    failOnce();
    vi.mocked(writeSync).mockClear();
    expect(ask(...two("held"))).toBe(true);
    expect(vi.mocked(writeSync).mock.calls.filter(isOfHeads)).toHaveLength(1);
    expect(posts[0]?.map(({ failure }) => failure)).toEqual([undefined, undefined]);
    failOnce();
    fail(1);
    expect(ask(...two("held by another"))).toBe(false);
    expect(posts[1]?.map(({ number, failure }) => [number, failure?.code])).toEqual([
      [1, "FLUSH_FAILED"],
      [2, "FLUSH_FAILED"],
    ]);
    expect(recordsOf(database)[0]?.text).toBe("held");
  });

  test("a flush that fails is made up for, or what waits for it is not confirmed and the files are opened anew", async () => {
    const { database, fail } = await onDisk();
    const posts: (readonly Answer[])[] = [];
    const ask = (asked: Letter) => answerLetters(database, [asked], (answers) => posts.push(answers));
    fail(1);
    expect(ask(letter(1, [{ key: "a", text: "held" }]))).toBe(true);
    expect(posts[0]?.[0]?.failure).toBeUndefined();
    fail(2);
    expect(ask(letter(2, [{ key: "b", text: "held" }]))).toBe(false);
    expect(posts[1]).toEqual([
      { number: 2, failure: { code: "FLUSH_FAILED", message: "EIO: i/o error, fdatasync" } },
    ]);
  });
});

describe("file: what may be lost", () => {
  test("is on the disk before long, whoever waits for it or not", async () => {
    const flushes = new SharedArrayBuffer(4);
    const count = () => Atomics.load(new Int32Array(flushes), 0);
    const thread = new Worker(new URL("../../../src/stores/file/disk-thread.js", import.meta.url), {
      workerData: { folder: testFolder(), gate: newGate(), flushes },
      execArgv: ["--import", join(import.meta.dirname, "count-flushes.mjs")],
    });
    const tell = async (asked: Letter) => {
      thread.postMessage(asked);
      const [post] = (await once(thread, "message")) as [Post];
      expect(post.answers.map(({ number }) => number)).toEqual([asked.number]);
    };
    await tell(letter(1, [{ key: "a", text: "held" }]));
    const before = count();
    await tell(letter(2, [{ key: "b", text: "given back" }], 0));
    expect(count()).toBe(before);
    await vi.waitFor(() => expect(count()).toBe(before + 1), 5_000);
    thread.postMessage("close");
    await once(thread, "exit");
    expect(count()).toBe(before + 1);
  });

  test("is a release that lets nobody in, of a lease that ends within a minute", async () => {
    const asked: boolean[] = [];
    const post = Worker.prototype.postMessage;
    const spy = vi.spyOn(Worker.prototype, "postMessage").mockImplementation(function (
      this: Worker,
      message,
    ) {
      const { verb, forgettableFromMs } = message.request ?? {};
      if (verb === "swap") asked.push(forgettableFromMs !== undefined && forgettableFromMs <= Date.now());
      post.call(this, message);
    });
    onTestFinished(() => spy.mockRestore());
    const locks = createLocks(fileStore(testFolder()));
    const took = async (work: Promise<unknown>) => {
      await work;
      return asked.splice(0);
    };
    const short = await locks.mutex("short", { ttlMs: 30_000 }).acquire();
    expect(asked.splice(0)).toEqual([false]);
    expect(await took(short.release())).toEqual([true]);
    const long = await locks.mutex("long", { ttlMs: 120_000 }).acquire();
    expect(asked.splice(0)).toEqual([false]);
    expect(await took(long.release())).toEqual([false]);
    const first = await locks.mutex("passed on").acquire();
    const second = locks.mutex("passed on").acquire();
    await vi.waitFor(async () => expect((await locks.inspect("passed on")).waiting).toHaveLength(1));
    asked.splice(0);
    expect(await took(first.release())).toEqual([false]);
    await (await second).release();
    await locks.close();
  });
});

function isLossy(asked: Letter | undefined): boolean {
  return asked?.request.verb === "swap" && asked.request.forgettableFromMs !== undefined;
}
