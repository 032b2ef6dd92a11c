/** Letters that are answered one by one, because all of them together found no room. */
import * as lmdb from "lmdb";
import { describe, expect, onTestFinished, test } from "vitest";
import { answerLetters } from "../../../src/stores/file/letters.js";
import { openFolder } from "../../../src/stores/file/open-folder.js";
import type { Answer, Letter } from "../../../src/stores/file/protocol.ts";
import { testFolder } from "./folders.ts";
import { letter, reading } from "./letters.ts";

/** Files of which some transactions fail: with this code, by their place from now on. */
async function failing(codes: Readonly<Record<number, string>>) {
  const files = await openFolder(lmdb, testFolder());
  onTestFinished(() => files.close());
  const posts: (readonly Answer[])[] = [];
  const ask = (...letters: Letter[]) => answerLetters(files, letters, (answers) => posts.push(answers));
  const begin = () => {
    const transact = files.transact.bind(files);
    let place = 0;
    files.transact = (work) => {
      const code = codes[++place];
      if (code !== undefined) throw Object.assign(new Error(code), { code });
      return transact(work);
    };
  };
  return { files, ask, posts, begin };
}

const held = (key: string) => ({ key, text: "held" });

describe("file: letters that are answered one by one", () => {
  // (1) All together find no room. (2) The first is made. (3) At the second, another process opens the file. (4) Asked for again, the first
  // would meet what it has made itself, and be told that another has the lock.
  test.for([
    ["two letters", [letter(1, [held("a")]), letter(2, [held("b")])]],
    ["two changes of a letter", [letter(1, [held("a"), held("b")])]],
  ] as const)("are not asked for again after one of them was made: %s", async ([, letters]) => {
    const { ask, posts, begin } = await failing({ 1: "ENOSPC", 3: "STALE_BASE" });
    begin();
    expect(ask(...letters)).toBe(false);
    expect(posts.flat().map(({ failure }) => failure?.code)).toEqual(letters.map(() => "HALF_DONE"));
  });

  // (1) A release is made, and is not on the disk. (2) A look after it sees its time. (3) The release is answered, as if the disk had that time: after a
  // loss of power, time would go on from the one before, and the lease last longer than a minute.
  test("a release is answered by the time that the disk has", async () => {
    const { files, ask, posts, begin } = await failing({ 1: "ENOSPC" });
    ask(letter(1, [held("a")]));
    const knownMs = files.nowMs();
    while (files.nowMs() < knownMs + 3) await new Promise((resolve) => setTimeout(resolve, 1));
    posts.length = 0;
    begin();
    ask(letter(2, [{ key: "b", text: "given back" }], files.nowMs() - 1), reading(3, ["a"]));
    expect(posts.map((answers) => answers.map(({ number }) => number))).toEqual([[2, 3]]);
  });
});
