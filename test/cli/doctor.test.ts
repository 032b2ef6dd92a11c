/** `holdfast doctor` on real stores, well and ill. */
import { createLocks, memoryStore } from "holdfast";
import { hashToken } from "holdfast/server";
import { describe, expect, test } from "vitest";
import { canRunRedis, startRedis } from "../engines/redis.ts";
import { startLockServer } from "../server/lock-server.ts";
import { atEnd, run, temporaryFolder } from "./command.ts";

interface Found {
  readonly store: string;
  readonly healthy: boolean;
  readonly checks: readonly { name: string; verdict: string; found: string; remedy?: string }[];
}

async function examine(
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<Found & { code: number | null }> {
  const { code, stdout } = await run(["doctor", "--json", ...args], { env });
  return { ...(JSON.parse(stdout) as Found), code };
}

const verdicts = ({ checks }: Found) =>
  Object.fromEntries(checks.map(({ name, verdict }) => [name, verdict]));

const well = {
  version: "ok",
  reachable: "ok",
  rights: "ok",
  clock: "ok",
  latency: "ok",
  fences: "ok",
  "wake-up": "ok",
};

describe("a store that is well", () => {
  test("file: all is well, and nothing is left behind", async () => {
    const url = `file:${temporaryFolder()}/locks`;
    const found = await examine(["--store", url]);
    expect(found).toMatchObject({ code: 0, healthy: true, store: url });
    expect(verdicts(found)).toEqual({ ...well, durability: "ok" });
    expect(await run(["ls", "--store", url])).toMatchObject({ code: 0, stdout: "" });
  });

  test.skipIf(!canRunRedis())("redis: warns that it may forget", async () => {
    const redis = await startRedis();
    atEnd(() => redis.stop());
    const { code, stdout } = await run(["doctor"], {
      env: { HOLDFAST_STORE: `redis://127.0.0.1:${redis.port}` },
    });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^ok {4}wake-up {5}a waiter learned of its grant within /m);
    expect(stdout).toMatch(/^warn {2}durability .*\n +→ /m);
  });
});

describe("through a server", () => {
  test("with a token that permits certain keys", async () => {
    const store = memoryStore();
    const tokens = [
      {
        name: "some",
        sha256: hashToken("s3cret"),
        grants: [{ prefix: "mine/", verbs: ["acquire", "read"] as const }],
      },
    ];
    const server = await startLockServer({ store, tokens });
    atEnd(() => server.stop({ graceMs: 0 }));
    const args = ["--server", server.url];
    const env = { HOLDFAST_TOKEN: "s3cret" };
    const found = await examine([...args, "--prefix", "mine/doctor/"], env);
    expect(verdicts(found)).toEqual({ ...well, durability: "warn" });
    const refused = await examine(args, env);
    expect(refused).toMatchObject({ code: 1, healthy: false });
    expect(refused.checks[1]).toMatchObject({
      name: "reachable",
      verdict: "fail",
      found: expect.stringContaining("UNAUTHORIZED"),
      remedy: expect.stringContaining("--prefix"),
    });
    expect(verdicts(refused)).toMatchObject({ rights: "skipped", durability: "skipped" });
    expect(JSON.stringify(refused)).not.toContain("s3cret");
    const unknown = await examine(args, { HOLDFAST_TOKEN: "wrong" });
    expect(unknown.checks[1]).toMatchObject({
      verdict: "fail",
      found: expect.stringContaining("UNAUTHORIZED"),
    });
    const locks = createLocks(store);
    for await (const { key } of locks.list()) expect.fail(`${key} was left behind`);
    await locks.close();
  });
});

test("a store that is not there fails, with a remedy and without its password", async () => {
  const found = await examine(["--store", "redis://user:s3cret@127.0.0.1:1", "--timeout", "500ms"]);
  expect(found).toMatchObject({ code: 1, healthy: false, store: "redis://user:***@127.0.0.1:1" });
  expect(found.checks[1]).toMatchObject({
    name: "reachable",
    verdict: "fail",
    remedy: expect.stringContaining("Check that the store runs"),
  });
  expect(JSON.stringify(found)).not.toContain("s3cret");
});

// mkdir of Node never returns from there, so the command could not end.
test.runIf(process.platform === "linux")(
  "a folder that cannot be made fails, and no firewall is blamed",
  async () => {
    const found = await examine(["--store", "file:/proc/holdfast"]);
    expect(found).toMatchObject({ code: 1, healthy: false });
    expect(found.checks[1]).toMatchObject({
      verdict: "fail",
      found: expect.stringContaining("No folder can be made there."),
      remedy: expect.stringContaining("path of the folder"),
    });
  },
);
