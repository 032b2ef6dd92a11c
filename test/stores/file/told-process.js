/** A process that has a folder open, and does with it what it is told: one thing at a time. It needs no compiler, so it starts soon. */
import * as lmdb from "lmdb";
import { Log } from "../../../src/stores/file/log.js";
import { openFolder } from "../../../src/stores/file/open-folder.js";
import { answer } from "../../../src/stores/file/requests.js";

const [path = "", options = "{}"] = process.argv.slice(2);
const folder = await openFolder(lmdb, path, JSON.parse(options));
const write = Log.prototype.write;

/** @param {import("../../../src/stores/file/protocol.ts").Request} request */
const answered = (request) => folder.transact(() => answer(folder, request));

/** @type {Record<string, (request: any) => unknown>} */
const deeds = {
  answer: answered,
  /** Several in one transaction. */
  answerAll: (requests) =>
    folder.transact(() => requests.map((/** @type {any} */ each) => answer(folder, each))),
  /** The transaction fails after all was done but for the log, … */
  failEarly: (request) =>
    folder.transact(() => {
      answer(folder, request);
      throw new Error("failed on purpose");
    }),
  /** … or with its entry in the log. */
  failLate: (request) => {
    Log.prototype.write = function (...entry) {
      write.apply(this, entry);
      throw new Error("failed on purpose");
    };
    try {
      return answered(request);
    } finally {
      Log.prototype.write = write;
    }
  },
  tidy: () => folder.tidy(),
  flush: () => folder.flush(),
  close: () => folder.close(),
};

process.on("message", async (/** @type {{ deed: string, request: unknown }} */ { deed, request }) => {
  try {
    process.send?.({ reply: await deeds[deed]?.(request) });
  } catch (error) {
    process.send?.({ failure: String(error) });
  }
});
process.send?.({ reply: "open" });
