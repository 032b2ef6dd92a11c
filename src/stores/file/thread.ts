/**
 * The thread that owns the file of a folder, for all stores of its process. It answers the requests that have gathered in one
 * transaction, and posts the answers when the commit is on the disk. So a slow disk, or another process in a transaction, never blocks
 * the event loop of the application.
 */
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import type { Database } from "./database.ts";
import { guarded } from "./exit-guard.ts";
import { type Answer, failureOf, type Message, type ThreadData } from "./protocol.ts";
import { Opening } from "./readiness.ts";
import { answer } from "./statements.ts";

/** Requests in one transaction at most. */
const BATCH = 64;
/** Attempts to open the file and run a transaction while other processes open the file too. */
const MAX_ATTEMPTS = 5;

const port = parentPort as MessagePort;
const { folder, guard } = workerData as ThreadData;
const opening = new Opening(folder, (work) => guarded(guard, work));
let database: Database | undefined;
const queue: Message[] = [];
let isClosing = false;
let isServing = false;

port.on("message", (message: Message | "close") => {
  if (message === "close") isClosing = true;
  else queue.push(message);
  if (isServing) return;
  isServing = true;
  // By then all messages that have arrived are in the queue.
  setImmediate(() => void serve());
});

async function serve(): Promise<void> {
  while (queue.length > 0) {
    port.postMessage(await answers(queue.splice(0, BATCH)));
    await new Promise(setImmediate);
  }
  isServing = false;
  if (!isClosing) return;
  await close();
  port.close();
}

async function answers(messages: readonly Message[], attempts = MAX_ATTEMPTS): Promise<readonly Answer[]> {
  try {
    const present = database ?? (await opening.open());
    database = present;
    return guarded(guard, () => present.transact(() => messages.map((message) => answer(present, message))));
  } catch (error) {
    const failure = failureOf(error);
    await close();
    // Nothing was written: the check comes before the first change of a transaction.
    if (failure.code === "STALE" && attempts > 1) return answers(messages, attempts - 1);
    return messages.map(({ number }) => ({ number, failure }));
  }
}

async function close(): Promise<void> {
  const closing = database;
  database = undefined;
  await closing?.close();
}
