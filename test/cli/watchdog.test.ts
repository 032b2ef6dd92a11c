/** The watchdog, told new times in quick succession. */
import { spawn } from "node:child_process";
import { expect, test } from "vitest";
import { startWatchdog } from "../../src/cli/watchdog.ts";
import { atEnd, until } from "./command.ts";

const soon = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

test("a later time takes an earlier one back, however quickly it comes, and the last one counts", async () => {
  const target = spawn("sleep", ["60"], { detached: true });
  atEnd(() => target.kill("SIGKILL"));
  const watchdog = startWatchdog();
  watchdog.guard(-target.pid!);
  for (let turn = 0; turn < 20; turn++) watchdog.arm(turn % 2 === 0 ? 1_500 : 60_000);
  await soon(2_500);
  expect(target.signalCode).toBeNull();
  watchdog.arm(100);
  await until("the target is killed", () => target.signalCode === "SIGKILL");
  watchdog.dismiss();
});

test("after a goodbye nobody is killed, and nothing is left of it", async () => {
  const target = spawn("sleep", ["60"], { detached: true });
  atEnd(() => target.kill("SIGKILL"));
  const watchdog = startWatchdog();
  watchdog.guard(-target.pid!);
  watchdog.arm(1_000);
  watchdog.arm(1_200);
  watchdog.dismiss();
  await soon(2_000);
  expect(target.signalCode).toBeNull();
});
