/** Logs what it is told to, and tells what it has done, over the channel to the one that started it or into a file. */
import { writeFileSync } from "node:fs";
import { openLog } from "../../src/server/log.ts";

const { logger, close } = openLog();
const [file] = process.argv.slice(2);

async function act(what: string): Promise<void> {
  if (what === "log") for (let line = 0; line < 20; line++) logger.info({ line }, "one of twenty");
  if (what === "log much") for (let line = 0; line < 40_000; line++) logger.info({ line }, "one of many");
  if (what === "close") await Promise.all([close(), close()]).then(() => close());
  if (what === "timers") return tell(process.getActiveResourcesInfo().filter((name) => name === "Timeout"));
  if (what === "close at once") {
    const later = new Promise((resolve) => setImmediate(resolve, "later"));
    return tell(await Promise.race([close().then(() => "at once"), later]));
  }
  if (what === "exit") process.exit();
  return tell(what);
}

function tell(message: unknown): void {
  process.send?.(message);
}

if (file === undefined) {
  process.on("message", (what: string) => void act(what));
  tell("ready");
} else {
  // It is stopped from reading this before the signal comes.
  process.once("SIGUSR2", async () => {
    await act("log much");
    await act("close");
    writeFileSync(`${file}.closed`, "");
    process.exit();
  });
  writeFileSync(file, `${process.pid}`);
  setInterval(() => {}, 60_000);
}
