/** A process whose file has some megabytes. It takes a hundred more locks for each message, and sends their outcomes. */
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";

const [folder = ""] = process.argv.slice(2);
const locks = createLocks(fileStore(folder), { requestTimeoutMs: 1_000, onWarning: () => {} });
let count = 0;

function takeHundred(): Promise<readonly string[]> {
  const taking = Array.from({ length: 100 }, async () => {
    const mutex = locks.mutex(`key:${count++}`, { ttlMs: 600_000 });
    try {
      return (await mutex.tryAcquire({ info: "x".repeat(1_000) })) === null ? "taken" : "granted";
    } catch (error) {
      return (error as { code: string }).code;
    }
  });
  return Promise.all(taking);
}

for (let round = 0; round < 22; round++) await takeHundred();
process.on("message", async () => process.send?.(await takeHundred()));
process.send?.("ready");
