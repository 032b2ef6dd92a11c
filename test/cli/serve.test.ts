/** `holdfast serve`: how it starts, what it is told, and how it ends. */

import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { createLocks } from "holdfast";
import { openStore } from "holdfast/open";
import { remoteStore } from "holdfast/remote";
import { hashToken } from "holdfast/server";
import { describe, expect, test } from "vitest";
import { canRunRedis, freePort, startRedis } from "../engines/redis.ts";
import { atEnd, run, serve, start, startOnTerminal, temporaryFolder, until } from "./command.ts";

describe.concurrent("a server on files", () => {
  test("is killed and started again: what was held is held, waiters are served, fences grow", async () => {
    const folder = temporaryFolder();
    const port = `${await freePort()}`;
    const args = ["--data", folder, "--port", port];
    const first = await serve(args);
    const locks = createLocks(remoteStore(first.url));
    atEnd(() => locks.close());
    const held = await locks.mutex("k", { ttlMs: 60_000 }).acquire();
    const script = 'echo "$HOLDFAST_FENCE"';
    const options = ["--ttl", "1m", "--server", first.url];
    const waiter = startOnTerminal(["run", "k", ...options, "--", "sh", "-c", script]);
    // As long as it has no answer it asks, and gives up on a server that is away for 5 s. In the queue it waits for a ttl.
    await until("it knows that it waits", () => waiter.stdout().includes('holdfast: waiting for "k"'));

    first.kill("SIGKILL");
    await first.ended;
    const second = await serve(args);
    await until("the lease is there again", async () => {
      const { heldCount, waitingCount } = await locks
        .inspect("k")
        .catch(() => ({ heldCount: 0, waitingCount: 0 }));
      return heldCount === 1 && waitingCount === 1;
    });
    expect(held.held).toBe(true);
    expect(await held.release()).toBe(true);
    const { code, stdout } = await waiter.ended;
    expect(code, stdout).toBe(0);
    expect(BigInt(stdout.trim().split("\n").at(-1) ?? "")).toBeGreaterThan(held.fence);

    second.kill("SIGTERM");
    expect((await second.ended).code).toBe(0);
    expect(second.log().at(-1)?.msg).toBe("stopped");
  });
});

describe.skipIf(!canRunRedis()).concurrent("two servers over one Redis", () => {
  test("are one lock space", async () => {
    const redis = await startRedis();
    atEnd(() => redis.stop());
    const store = ["--store", `redis://127.0.0.1:${redis.port}`, "--port", "0"];
    const [one, two] = await Promise.all([serve(store), serve(store)]);
    const holder = start([
      "run",
      "k",
      "--server",
      one.url,
      "--",
      "sh",
      "-c",
      "echo $HOLDFAST_FENCE; sleep 60",
    ]);
    await until("it holds the lock", () => holder.stdout() !== "");
    expect((await run(["run", "k", "--wait", "0", "--server", two.url, "--", "true"])).code).toBe(75);
    const straight = JSON.parse((await run(["inspect", "k", "--json", ...store.slice(0, 2)])).stdout);
    expect(straight, holder.stderr()).toMatchObject({ held: [{ fence: holder.stdout().trim() }] });
    holder.kill("SIGTERM");
    expect((await holder.ended).code).toBe(143);
    const next = await run(["run", "k", "--server", two.url, "--", "sh", "-c", "echo $HOLDFAST_FENCE"]);
    expect(BigInt(next.stdout)).toBeGreaterThan(BigInt(holder.stdout()));
    // A command that goes to several servers goes on when one of them stops.
    const hosts = [one, two].map(({ url }) => url.replace("http://", "")).join(",");
    const through = start([
      "run",
      "moving",
      "--ttl",
      "3s",
      "--server",
      hosts,
      "--",
      "sh",
      "-c",
      "echo on; sleep 3",
    ]);
    await until("it holds the lock", () => through.stdout() !== "");
    one.kill("SIGTERM");
    expect((await one.ended).code).toBe(0);
    expect(await through.ended).toMatchObject({ code: 0, stderr: "" });
  });
});

describe.concurrent("stopping", () => {
  test("waits for what is under way, and a second signal does not", async () => {
    const serving = await serve(["--memory", "--port", "0", "--grace", "1m"]);
    // A connection that never ends.
    const { connect } = await import("node:net");
    const socket = connect(Number(new URL(serving.url).port), "127.0.0.1").resume();
    socket.on("error", () => {});
    socket.write("PRI");
    await new Promise((resolve) => socket.once("connect", resolve));
    serving.kill("SIGINT");
    await until("it stops", () => serving.log().some(({ msg }) => msg === "stopping"));
    serving.kill("SIGINT");
    await new Promise((resolve) => setTimeout(resolve, 600));
    expect(serving.process.exitCode, "a terminal and a parent may both signal").toBeNull();
    serving.kill("SIGINT");
    expect(await serving.ended).toMatchObject({ code: 130, stderr: "" });
    socket.destroy();
  });

  test("needs nobody who reads the log: a reader that has gone away, as head does, is not waited for", async () => {
    const serving = await serve(["--memory", "--port", "0"]);
    serving.process.stdout?.destroy();
    // It goes on meanwhile.
    const lock = ["run", "k", "--server", serving.url, "--", "true"];
    expect(await run(lock)).toMatchObject({ code: 0 });
    serving.kill("SIGTERM");
    await until("it has ended", () => serving.process.exitCode !== null);
    expect(serving.process.exitCode).toBe(0);
  });
});

describe.concurrent("tokens", () => {
  test("are made by the command, checked, and read again on SIGHUP", async () => {
    const file = join(temporaryFolder(), "tokens.json");
    const make = (...args: string[]) => run(["token", "new", "--add-to", file, ...args]);
    const some = await make("--name", "some", "--grant", "some/=acquire,read");
    expect(some).toMatchObject({ code: 0, stdout: expect.stringMatching(/^hf_[\w-]{43}\n$/) });
    const token = some.stdout.trim();
    expect(readFileSync(file, "utf8")).not.toContain(token);
    const serving = await serve(["--memory", "--port", "0", "--tokens", file]);
    const lock = (key: string, HOLDFAST_TOKEN: string) =>
      run(["run", key, "--server", serving.url, "--", "true"], { env: { HOLDFAST_TOKEN } });
    expect((await lock("some/k", token)).code).toBe(0);
    expect(await lock("other/k", token)).toMatchObject({
      code: 77,
      stderr: expect.stringContaining("UNAUTHORIZED"),
    });
    expect((await lock("some/k", "wrong")).code).toBe(77);
    const other = await make("--name", "other", "--grant", "=acquire", "--json");
    const made = JSON.parse(other.stdout);
    expect(made.entry).toEqual({
      name: "other",
      sha256: hashToken(made.token),
      grants: [{ prefix: "", verbs: ["acquire"] }],
    });
    const times = () => serving.log().filter(({ msg }) => msg === "read the token file again").length;
    await until("it has noticed the change by itself", () => times() === 1);
    // Without a change, nothing but the signal makes it read the file.
    serving.kill("SIGHUP");
    await until("it has read the file once more", () => times() === 2);
    expect((await lock("other/k", made.token)).code).toBe(0);
    expect(await make("--name", "some", "--grant", "=read")).toMatchObject({ code: 64, stdout: "" });
    expect(serving.stdout()).not.toContain(token);
    serving.kill("SIGTERM");
    expect((await serving.ended).code).toBe(0);
  });

  test.concurrent.each([
    [["--name", "x"], "permits nothing"],
    [["--name", "x", "--grant", "k=fly"], "verbs out of acquire, read, admin"],
    [["--grant", "=read"], "--name"],
  ])("token new %j is refused", async (args, message) => {
    expect(await run(["token", "new", ...args])).toMatchObject({
      code: 64,
      stderr: expect.stringContaining(message),
    });
  });
});

describe.concurrent("the configuration", () => {
  test("is printed with where each value comes from, and without passwords", async () => {
    const file = join(temporaryFolder(), "holdfast.yaml");
    writeFileSync(file, "port: 7430\nlimits:\n  silence: 1m\n");
    const options = { env: { HOLDFAST_STORE: "postgres://me:s3cret@db/locks?sslpassword=s3cret" } };
    const args = ["serve", "--config", file, "--log-level", "warn", "--print-config"];
    const { code, stdout } = await run(args, options);
    expect(code).toBe(0);
    expect(stdout).not.toContain("s3cret");
    const rows = new Map(
      stdout
        .trimEnd()
        .split("\n")
        .map((line) => [line.split(/ {2,}/)[0], line.split(/ {2,}/).slice(1)]),
    );
    expect(rows.get("store")).toEqual(["postgres://me:***@db/locks?sslpassword=***", "HOLDFAST_STORE"]);
    expect(rows.get("port")).toEqual(["7430", `port in ${file}`]);
    expect(rows.get("limits.silence")).toEqual(["1m", `limits.silence in ${file}`]);
    expect(rows.get("logLevel")).toEqual(["warn", "--log-level"]);
    expect(rows.get("address")).toEqual(["127.0.0.1", "default"]);
    const { settings } = JSON.parse((await run([...args, "--json"], options)).stdout);
    expect(settings).toContainEqual({
      name: "port",
      value: "7430",
      from: `port in ${file}`,
      flag: "--port",
      variable: "HOLDFAST_PORT",
    });
  });

  test("reaches the server", async () => {
    const folder = temporaryFolder();
    const file = join(folder, "holdfast.json");
    writeFileSync(file, JSON.stringify({ port: 0, data: "data", limits: { maxTtl: "1m" } }));
    const serving = await serve([], { env: { HOLDFAST_CONFIG: file, HOLDFAST_LOG_LEVEL: "debug" } });
    const store = await openStore(serving.url.replace("http:", "holdfast:"));
    expect(store.durability).toBe("local");
    await store.close();
    const long = await run(["run", "k", "--ttl", "2m", "--server", serving.url, "--", "true"]);
    expect(long.code).not.toBe(0);
    expect(long.stderr).toContain("60000");
    serving.kill("SIGTERM");
    await serving.ended;
  });

  test.concurrent.each([
    [["--port", "x", "--log-level", "warn"], 64, "--port must be a whole number"],
    [["--memory", "--address", "0.0.0.0", "--port", "0"], 64, "is reachable from other machines"],
    [["--store", "holdfast://other"], 64, "Name a store instead"],
    [["--store", "foo:bar"], 64, "--store must begin with one of memory:"],
    [["--memory", "--tls-cert", "none.crt"], 64, "cannot read the file of --tls-cert"],
    [["--data", "/proc/holdfast"], 64, "Name another folder with --data."],
    [["--memory", "--tokens", "none.json"], 64, "none.json"],
    [["--data", "/dev/null/none"], 64, "--data"],
    [["--prot", "1"], 64, "Did you mean --port?"],
  ])("%j is refused", async (args, code, message) => {
    const ended = await run(["serve", ...args], { cwd: temporaryFolder() });
    expect(ended).toMatchObject({ code, stderr: expect.stringContaining(message) });
    expect(ended.stderr).not.toMatch(/^ +at /m);
  });

  test("a port that is taken is told, with what to do", async () => {
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
    atEnd(() => taken.close());
    const { port } = taken.address() as { port: number };
    const ended = await run(["serve", "--memory", "--port", `${port}`]);
    expect(ended).toMatchObject({
      code: 70,
      stderr: expect.stringContaining(`already listens on 127.0.0.1:${port}.`),
    });
  });

  test("a store that is away does not keep it from starting", async () => {
    // Not merely a port that nobody has: another test might start a server there.
    const away = createServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => away.listen(0, "127.0.0.1", resolve));
    atEnd(() => away.close());
    const { port } = away.address() as { port: number };
    const serving = await serve(["--store", `redis://127.0.0.1:${port}`, "--port", "0"]);
    expect(serving.log().some(({ msg }) => msg.endsWith("The server starts anyway."))).toBe(true);
    expect((await fetch(`${serving.url}/healthz`)).status).toBe(200);
    expect((await fetch(`${serving.url}/readyz`)).status).toBe(503);
    serving.kill("SIGTERM");
    expect((await serving.ended).code).toBe(0);
  });
});
