/** `npm run opening -- [records]`: how long the first process takes to open a folder with so many records, which it reads all. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as lmdb from "lmdb";
import { answerLetters } from "../../../src/stores/file/letters.js";
import { openFolder } from "../../../src/stores/file/open-folder.js";
import { letter } from "./letters.ts";

const BATCH = 1_000;
const TEXT = "x".repeat(200);

const records = Number(process.argv[2] ?? 100_000);
const folder = mkdtempSync(join(tmpdir(), "holdfast-opening-"));
try {
  const files = await openFolder(lmdb, folder);
  for (let from = 0; from < records; from += BATCH) {
    const wishes = Array.from({ length: BATCH }, (_, place) => ({ key: `key:${from + place}`, text: TEXT }));
    answerLetters(files, [letter(from, wishes)], ([answer]) => {
      if (answer?.failure !== undefined) throw new Error(answer.failure.message);
    });
    files.tidy();
  }
  await files.close();
  const startMs = performance.now();
  const again = await openFolder(lmdb, folder);
  const tookMs = Math.round(performance.now() - startMs);
  await again.close();
  console.log(`${records} records: ${tookMs} ms`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
