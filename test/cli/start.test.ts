/** `npm start`: a server on files, what to try with it, and a clean end. */
import { execFile, spawn } from "node:child_process";
import { promisify } from "node:util";
import { createLocks } from "holdfast";
import { remoteStore } from "holdfast/remote";
import { expect, test } from "vitest";
import { isRunning } from "../engines/engine.ts";
import { root } from "../source-tree.ts";
import { atEnd, binFolder, cleanEnv, temporaryFolder, until } from "./command.ts";

test("starts a server on files, what it says to try works, and Ctrl-C stops it", async () => {
  const folder = temporaryFolder();
  // A group of its own, so that Ctrl-C reaches all of it and nothing else.
  const npm = spawn("npm", ["start", "--silent", "--", "--port", "0", "--data", folder], {
    cwd: root,
    env: cleanEnv(),
    detached: true,
  });
  atEnd(() => isRunning(npm.pid!) && process.kill(-npm.pid!, "SIGKILL"));
  let said = "";
  for (const stream of [npm.stdout, npm.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
  }
  const ended = new Promise((resolve) => npm.once("close", resolve));
  await until("it says what to try", () => said.includes("From TypeScript"));
  const url = /listens on (\S+) /.exec(said)![1]!;
  expect(said).toContain(`keeps its locks in file:${folder}/locks`);

  const env = cleanEnv({ PATH: `${binFolder(temporaryFolder())}:${process.env["PATH"]}` });
  const shell = (script: string) => promisify(execFile)("sh", ["-c", script], { env });
  const commands = [...said.matchAll(/^ {4}((?:holdfast|curl) (?:.*\\\n)?.*)$/gm)].map(
    ([, command = ""]) => command,
  );
  expect(commands.map((command) => command.split(" ").slice(0, 2).join(" "))).toEqual([
    "holdfast run",
    "holdfast ls",
    "holdfast doctor",
    "curl -s",
  ]);
  // One after the other: the first and the last want the same lock.
  const printed: string[] = [];
  for (const command of commands) printed.push((await shell(command.replace("sleep 30", "true"))).stdout);
  const [run, , doctor, curl] = printed;
  expect(run).toMatch(/^fence \d+\n$/);
  expect(doctor).toContain("ok    durability");
  expect(JSON.parse(curl!)).toMatchObject({ acquired: true });

  const locks = createLocks(remoteStore(url));
  expect(await locks.mutex("from the library").run((lease) => lease.fence > 0n)).toBe(true);
  await locks.close();

  process.kill(-npm.pid!, "SIGINT");
  await ended;
  expect(said).not.toMatch(/\n +at /);
});
