/** What a machine that loses its power has afterwards, at any moment. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  fdatasyncSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import * as lmdb from "lmdb";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { Base } from "../../../src/stores/file/base.js";
import type { Folder } from "../../../src/stores/file/folder.js";
import { newGate } from "../../../src/stores/file/gate.js";
import { answerLetters } from "../../../src/stores/file/letters.js";
import { LmdbFile } from "../../../src/stores/file/lmdb-file.js";
import { Log } from "../../../src/stores/file/log.js";
import { openFolder } from "../../../src/stores/file/open-folder.js";
import type { Answer, Letter, Post, ReadReply } from "../../../src/stores/file/protocol.ts";
import { compiled } from "../../programs.ts";
import { Random } from "../../simulation/random.ts";
import { testFolder } from "./folders.ts";
import { letter, reading } from "./letters.ts";
import { livePath, spoilLive } from "./raw-files.ts";
import { failedFlush, type Image, ReckonedDisk, recordsOf, textsOf } from "./reckoned-disk.ts";

vi.mock("node:fs", async (original) => {
  const fs = await original<typeof import("node:fs")>();
  return { ...fs, fdatasyncSync: vi.fn(fs.fdatasyncSync), writeSync: vi.fn(fs.writeSync) };
});

const fs = await vi.importActual<typeof import("node:fs")>("node:fs");

afterEach(() => {
  vi.mocked(fdatasyncSync).mockReset().mockImplementation(fs.fdatasyncSync);
  vi.mocked(writeSync).mockReset().mockImplementation(fs.writeSync);
  vi.restoreAllMocks();
});

const KEYS = ["a", "b", "c", "d", "e", "f"];
/** So short that a log has some entries. */
const LOG_BYTES = 1_500;

const flushes = () => vi.mocked(fdatasyncSync).mock.calls.length;

async function opened(folder = testFolder(), options = {}): Promise<Folder> {
  const files = await openFolder(lmdb, folder, options);
  onTestFinished(() => files.close());
  return files;
}

interface Failing {
  /** How likely it is that flushes of a round fail, … */
  readonly flushes: number;
  /** … and that a transaction fails when its entry is in the log. Then a round has one change: several are made one by one after that. */
  readonly writes: number;
  /** How likely it is that a log is not put into locks.mdb, as where its process is killed before that. */
  readonly folds?: number;
}

/** Random letters, with the power lost at every moment of which the disk notices something. */
async function loseOften(seed: number, failing: Failing) {
  const random = new Random(seed);
  const folder = testFolder();
  // Every second history is of a process that takes itself to be alone, and leaves to the log what it can.
  const aloneAfter = seed % 2 === 0 ? 0 : 8;
  const open = () => openFolder(lmdb, folder, { logBytes: LOG_BYTES, aloneAfter });
  let files = await open();
  onTestFinished(() => files.close());
  const disk = new ReckonedDisk({ folder, random, keys: KEYS });
  disk.watchWrites(fs.writeSync);
  let records = recordsOf(files, KEYS);
  /** What the records were after each round; and what they would have been if the round had not failed, which may come about as well. */
  const states = [[textsOf(records)]];
  let confirmed = 0;
  const seen = { lost: 0, reopened: 0, failed: 0, unmade: 0, unfolded: 0 };
  for (let round = 1; round <= 60; round++) {
    const letters: Letter[] = [];
    const wanted = [...records];
    const only = failing.writes > 0 ? random.pick(KEYS) : undefined;
    for (const [place, key] of KEYS.entries()) {
      if (only === undefined ? random.chance(0.6) : key !== only) continue;
      const mayBeLost = random.chance(0.6);
      const text = `${mayBeLost ? "given back" : "held"} ${round} ${"x".repeat(random.integer(0, 300))}`;
      const wish = { key, text, expected: records[place]?.version ?? 0 };
      letters.push(letter(letters.length, [wish], mayBeLost ? 0 : undefined));
      wanted[place] = { version: 0, text };
    }
    if (only === undefined && random.chance(0.2)) letters.push(reading(letters.length, KEYS));
    const images: { readonly isFirm: boolean; readonly image: Image }[] = [];
    disk.onMoment = () => {
      if (random.chance(0.15)) images.push({ isFirm: false, image: disk.image() });
    };
    if (random.chance(failing.flushes)) disk.failingFlushes = random.integer(1, 3);
    if (random.chance(failing.writes)) disk.failingWrites = 1;
    const isUsable = answerLetters(files, letters, (answers) => {
      const isFirm = answers.some(
        ({ number, failure }) => failure === undefined && !isLossy(letters[number]),
      );
      if (answers.some(({ failure }) => failure !== undefined)) seen.failed++;
      images.push({ isFirm, image: disk.image() });
    });
    const isKilled = random.chance(failing.folds ?? 0);
    const fold = vi.spyOn(Base.prototype, "fold");
    if (isKilled) {
      fold.mockImplementation(() => {
        throw new Error("It was killed.");
      });
    }
    const isTidy = isUsable && isDone(() => files.tidy());
    fold.mockRestore();
    disk.failingFlushes = 0;
    disk.failingWrites = 0;
    if (!isTidy && failing.folds !== undefined) seen.unfolded++;
    else if (!isTidy || random.chance(0.1)) {
      seen.reopened++;
      await files.close();
      files = await open();
    }
    disk.onMoment = () => {};
    records = recordsOf(files, KEYS);
    states.push([textsOf(records), textsOf(wanted)]);
    for (const { isFirm, image } of images) {
      if (isFirm) confirmed = round;
      // A prefix of what happened, with everything that was confirmed.
      const texts = await disk.textsIn(image);
      expect(states.slice(confirmed).flat()).toContain(texts);
      if (texts !== textsOf(records)) seen.lost++;
      if (texts === textsOf(wanted) && texts !== textsOf(records)) seen.unmade++;
    }
  }
  return seen;
}

describe("file: a loss of power", { timeout: 60_000 }, () => {
  test("takes back nothing that was confirmed, but for what only gives back what ends soon", async () => {
    const { lost, failed } = await loseOften(7, { flushes: 0, writes: 0 });
    expect(lost).toBeGreaterThan(5);
    expect(failed).toBe(0);
  });

  test("finds the files whole, and all that was confirmed, also where flushes have failed", async () => {
    const { lost, reopened, failed } = await loseOften(8, { flushes: 0.4, writes: 0 });
    expect(lost).toBeGreaterThan(5);
    expect(reopened).toBeGreaterThan(5);
    expect(failed).toBeGreaterThan(5);
  });

  // (1) A transaction writes its entry, and fails, or its process is killed. (2) Others go on. (3) The entry is on the disk, or a part of it.
  test("may bring about what nobody was told of, and nothing that others have gone on without", async () => {
    const { failed, unmade } = await loseOften(9, { flushes: 0.1, writes: 0.5, folds: 0.5 });
    expect(failed).toBeGreaterThan(5);
    expect(unmade).toBeGreaterThan(0);
  });

  test("finds what is in two logs, of which the first was ended and is not in locks.mdb", async () => {
    const { lost, unfolded } = await loseOften(10, { flushes: 0, writes: 0, folds: 0.8 });
    expect(lost).toBeGreaterThan(5);
    expect(unfolded).toBeGreaterThan(5);
  });

  test("takes back nothing that anybody has seen, also of a process that was killed before it flushed", async () => {
    const folder = testFolder();
    const files = await opened(folder);
    vi.mocked(fdatasyncSync).mockClear();
    const look = (number: number) => {
      const seen: (string | undefined)[] = [];
      const before = flushes();
      answerLetters(files, [reading(number, ["theirs"])], ([answer]) => {
        const { rows } = (answer as Answer).reply as ReadReply;
        seen.push(rows[0]?.text, flushes() > before ? "flushed" : "not flushed");
      });
      return seen;
    };
    expect(look(1)).toEqual([undefined, "not flushed"]);
    const program = compiled(new URL("./committing-process.ts", import.meta.url));
    const killed = spawn(process.execPath, [program, folder]);
    expect((await once(killed, "exit"))[1]).toBe("SIGKILL");
    expect(look(2)).toEqual(["held", "flushed"]);
    // Once is enough, while nobody writes.
    expect(look(3)).toEqual(["held", "not flushed"]);
  });

  // (1) P writes to a log, and the system fails to put it on the disk. (2) Q ends that log, and P writes to the next. (3) P is told of the failure only
  // by the log that was ended.
  test("a log that others have ended is asked once more whether all of it was written", async () => {
    const folder = testFolder();
    const files = await opened(folder);
    const held = (number: number, key: string) => [letter(number, [{ key, text: "held" }])];
    const posts: (readonly Answer[])[] = [];
    answerLetters(files, held(1, "a"), () => {});
    const program = compiled(new URL("./committing-process.ts", import.meta.url));
    const other = spawn(process.execPath, [program, folder]);
    await once(other, "exit");
    const descriptors = new Set<number>();
    vi.mocked(fdatasyncSync).mockImplementation((descriptor) => {
      descriptors.add(descriptor);
      fs.fdatasyncSync(descriptor);
    });
    answerLetters(files, held(2, "b"), (answers) => posts.push(answers));
    expect(descriptors.size).toBe(2);
    answerLetters(files, held(3, "c"), (answers) => posts.push(answers));
    expect(posts.flat().map(({ failure }) => failure)).toEqual([undefined, undefined]);
  });

  test("a release that meets a conflict tells of it when that is on the disk", async () => {
    const files = await opened();
    vi.mocked(fdatasyncSync).mockClear();
    const counts: number[] = [];
    const ask = (asked: Letter) => answerLetters(files, [asked], () => counts.push(flushes()));
    ask(letter(1, [{ key: "a", text: "given back" }], 0));
    ask(letter(2, [{ key: "a", text: "given back twice" }], 0));
    expect(counts).toEqual([0, 1]);
  });

  test("a grant waits for one flush, and a release for none", async () => {
    const files = await opened();
    answerLetters(files, [letter(1, [{ key: "a", text: "held" }])], () => {});
    vi.mocked(fdatasyncSync).mockClear();
    const [row] = recordsOf(files, ["a"]);
    answerLetters(files, [letter(2, [{ key: "b", text: "held" }])], () => {});
    expect(flushes()).toBe(1);
    answerLetters(
      files,
      [letter(3, [{ key: "a", text: "given back", expected: row?.version ?? 0 }], 0)],
      () => {},
    );
    expect(flushes()).toBe(1);
  });

  test("a release waits where what it gives back ends long after the time that the disk knows", async () => {
    const files = await opened();
    const isEarly = (asked: Letter) => {
      const before = flushes();
      let during = before;
      answerLetters(files, [asked], () => {
        during = flushes();
      });
      return during === before;
    };
    isEarly(letter(1, [{ key: "a", text: "held" }]));
    // From this time the folder would go on after a loss of power.
    const keptMs = files.nowMs();
    expect(isEarly(letter(2, [{ key: "b", text: "given back" }], keptMs + 60_000))).toBe(false);
    expect(isEarly(letter(3, [{ key: "c", text: "given back" }], keptMs))).toBe(true);
  });

  test("a flush that fails is made up for, or what waits for it is not confirmed and the files are opened anew", async () => {
    const files = await opened();
    const posts: (readonly Answer[])[] = [];
    const ask = (asked: Letter) => answerLetters(files, [asked], (answers) => posts.push(answers));
    const failOnce = () =>
      vi.mocked(fdatasyncSync).mockImplementationOnce(() => {
        throw failedFlush();
      });
    failOnce();
    expect(ask(letter(1, [{ key: "a", text: "held" }]))).toBe(true);
    expect(posts[0]?.[0]?.failure).toBeUndefined();
    failOnce();
    failOnce();
    expect(ask(letter(2, [{ key: "b", text: "held" }]))).toBe(false);
    expect(posts[1]).toEqual([
      { number: 2, failure: { code: "FLUSH_FAILED", message: "EIO: i/o error, fdatasync" } },
    ]);
  });
});

describe("file: the log", () => {
  /** Both files of the log, the one that is written to first. */
  const logsOf = (folder: string) =>
    ["log-0", "log-1"]
      .map((name) => join(folder, name))
      .sort(
        (a, b) => Number(readFileSync(b).includes("latest")) - Number(readFileSync(a).includes("latest")),
      );

  test("is put into locks.mdb when it has become long, and its room is used again", async () => {
    const folder = testFolder();
    const files = await opened(folder, { logBytes: 20_000 });
    const text = "x".repeat(1_000);
    for (let round = 0; round < 300; round++) {
      const [row] = recordsOf(files, ["a"]);
      const wish = { key: "a", text, expected: row?.version ?? 0 };
      answerLetters(files, [letter(round, [wish])], () => {});
      files.tidy();
    }
    for (const log of logsOf(folder)) expect(readFileSync(log).length).toBeLessThan(100_000);
    expect(readFileSync(join(folder, "locks.mdb")).includes(text)).toBe(true);
  });

  // The disk is full, and what is left of the file is less than the beginning of an entry.
  test("can be ended also where its file cannot grow", () => {
    const log = new Log(testFolder());
    onTestFinished(() => log.close());
    log.makeRoom();
    vi.mocked(writeSync).mockImplementation(() => {
      throw Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
    });
    expect(() => log.end(1, 65_530)).not.toThrow();
  });

  // The system may forget what it failed to write.
  test("that has lost what was written to it is told, and nothing of it is believed before", async () => {
    const folder = testFolder();
    const files = await openFolder(lmdb, folder);
    answerLetters(files, [letter(1, [{ key: "a", text: "the latest" }])], () => {});
    const [log = ""] = logsOf(folder);
    const bytes = readFileSync(log);
    bytes[bytes.indexOf("latest")] = 0;
    writeFileSync(log, bytes);
    expect(() => files.mend()).toThrow(/log \d+, 0 of \d+ bytes are whole/);
    await files.close();
    // What the disk has is gone on with when nobody relies on more.
    expect(recordsOf(await opened(folder), ["a"])).toEqual([undefined]);
  });
});

describe("file: what is true now", () => {
  const texts = (files: Folder) => recordsOf(files, KEYS).map((row) => row?.text);
  const hold = (files: Folder, key: string) =>
    answerLetters(files, [letter(1, [{ key, text: "held" }])], () => {});

  // A disk that is taken away and comes back, while the machine goes on.
  test("does not count when nobody has it open, however good it looks", async () => {
    const folder = testFolder();
    const first = await openFolder(lmdb, folder);
    hold(first, "a");
    await first.close();
    const old = readFileSync(livePath(folder));
    const second = await openFolder(lmdb, folder);
    hold(second, "b");
    await second.close();
    writeFileSync(livePath(folder), old);
    const third = await opened(folder);
    expect(texts(third).slice(0, 2)).toEqual(["held", "held"]);
  });

  test("is not read where it is damaged", async () => {
    const folder = testFolder();
    for (const spoil of [
      () => spoilLive(folder),
      () => writeFileSync(livePath(folder), "half of a page"),
      () => writeFileSync(livePath(folder), ""),
      () => rmSync(livePath(folder)),
    ]) {
      const files = await openFolder(lmdb, folder);
      if (texts(files)[0] === undefined) hold(files, "a");
      expect(texts(files)[0]).toBe("held");
      await files.close();
      spoil();
    }
    expect(texts(await opened(folder))[0]).toBe("held");
  });

  test("is removed only where it is not one of LMDB, and not where it cannot be read", async () => {
    const folder = testFolder();
    const files = await opened(folder);
    hold(files, "a");
    rmSync(livePath(folder));
    mkdirSync(livePath(folder));
    await expect(openFolder(lmdb, folder)).rejects.toMatchObject({ code: "EISDIR" });
    expect(readdirSync(folder)).toContain("live.mdb");
    rmSync(livePath(folder), { recursive: true });
  });

  test("is noticed to be removed, also by those who have it open", async () => {
    const folder = testFolder();
    const files = await opened(folder);
    hold(files, "a");
    rmSync(livePath(folder));
    expect(() => texts(files)).toThrow(expect.objectContaining({ code: "STALE_BASE" }));
  });

  /** The next transaction does all that it should, and its commit fails. */
  const failCommit = (code = "EIO") => {
    const { transact } = LmdbFile.prototype;
    vi.spyOn(LmdbFile.prototype, "transact").mockImplementationOnce(function (this: LmdbFile, work) {
      return transact.call(this, () => {
        work();
        throw Object.assign(new Error("it failed"), { code });
      });
    });
  };

  // (1) The file system goes, and another one comes in its place. (2) All was on the disk, so no flush fails; but what P has open is gone for good.
  test.each(["EIO", "ESTALE", "ENODEV"])("is opened anew after %s", async (code) => {
    const files = await opened();
    hold(files, "a");
    const told: unknown[] = [];
    failCommit(code);
    const asked = [letter(1, [{ key: "b", text: "held" }])];
    expect(answerLetters(files, asked, ([answer]) => told.push(answer?.failure?.code))).toBe(false);
    expect(told).toEqual([code]);
  });

  // (1) The commit of a grant fails. (2) The failure is told, with a flush. (3) The grant is asked for again: an entry of the same length in the
  // same place.
  test("is flushed also where a commit before has failed", async () => {
    const files = await opened();
    for (let round = 0; round < 30; round++) {
      const asked = [letter(round, [{ key: `key:${round}`, text: "held" }])];
      const failures: unknown[] = [];
      failCommit("ENOMEM");
      answerLetters(files, asked, ([answer]) => failures.push(answer?.failure?.code));
      const before = flushes();
      answerLetters(files, asked, ([answer]) => failures.push(answer?.failure?.code));
      expect(failures).toEqual(["ENOMEM", undefined]);
      expect(flushes()).toBe(before + 1);
    }
  });

  // (1) A commit fails, and its entry is on the disk. (2) The log is ended before it, and its process is killed. (3) A grant is confirmed, in the
  // next log. (4) The power is lost: the first log ends with what has failed, and the next one follows upon what came before that.
  test("is found behind what has failed at the end of a log", async () => {
    const folder = testFolder();
    const files = await opened(folder);
    hold(files, "a");
    failCommit();
    hold(files, "b");
    vi.spyOn(Base.prototype, "fold").mockImplementationOnce(() => {
      throw new Error("It was killed.");
    });
    expect(() => files.makeRoom()).toThrow("killed");
    hold(files, "c");
    const copy = testFolder();
    cpSync(folder, copy, { recursive: true });
    spoilLive(copy);
    expect(texts(await opened(copy)).slice(0, 3)).toEqual(["held", undefined, "held"]);
  });
});

describe("file: a new folder", () => {
  // Its name, and those of its files, would be lost with the power.
  test.each(["a/b/c", "a/b", "a", "."])(
    "is not used before the names in %j below it are on the disk",
    async (failing) => {
      const root = testFolder();
      const thread = new Worker(new URL("../../../src/stores/file/disk-thread.js", import.meta.url), {
        workerData: { folder: join(root, "a/b/c"), gate: newGate(), failing: join(root, failing) },
        execArgv: ["--import", join(import.meta.dirname, "fail-sync.mjs")],
      });
      const outcomes: unknown[] = [];
      for (const number of [1, 2, 3]) {
        thread.postMessage(letter(number, [{ key: "a", text: "held" }]));
        const [{ answers }] = (await once(thread, "message")) as [Post];
        outcomes.push(answers[0]?.failure?.code);
      }
      thread.postMessage("close");
      await once(thread, "exit");
      expect(outcomes).toEqual(["EIO", "EIO", undefined]);
    },
  );
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
});

/** Whether it does not throw. */
function isDone(work: () => void): boolean {
  try {
    work();
    return true;
  } catch {
    return false;
  }
}

function isLossy(asked: Letter | undefined): boolean {
  return asked?.request.verb === "swap" && asked.request.forgettableFromMs !== undefined;
}
