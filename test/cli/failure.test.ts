/** The messages of a failed command: first the remedy, then the words of the system. */
import { HoldfastError, LeaseLostError, StoreUnavailableError } from "holdfast";
import { describe, expect, test } from "vitest";
import { describeFailure } from "../../src/cli/failure.ts";
import { canRunRedis, startRedis } from "../engines/redis.ts";
import { atEnd, run } from "./command.ts";

describe("what the command says", () => {
  const system = new Error("ENOSPC: no space left on device, write");
  const told = new StoreUnavailableError("The disk is full. Make room.", { cause: system });

  test("the store's sentence stands before the words of the system", () => {
    const { lines } = describeFailure(new LeaseLostError("k", "expired", told));
    expect(lines).toEqual([
      expect.stringMatching(
        /^holdfast: LEASE_LOST: The lease on "k" is lost: .* Stop the work it protects\.$/,
      ),
      "  The disk is full. Make room.",
      "  ENOSPC: no space left on device, write",
    ]);
  });

  test("what was said is not said again", () => {
    const outer = new HoldfastError("STORE_FAILURE", `It failed. ${told.message}`, { cause: told });
    expect(describeFailure(outer).lines).toEqual([
      "holdfast: STORE_FAILURE: It failed. The disk is full. Make room.",
      "  ENOSPC: no space left on device, write",
    ]);
  });

  test("options of the library have the names of flags", () => {
    const error = new StoreUnavailableError("The store did not answer (requestTimeoutMs 5000). Lower ttlMs.");
    expect(describeFailure(error).lines[0]).toContain("did not answer (--timeout 5s). Lower --ttl.");
    expect(describeFailure(new LeaseLostError("k", "max-hold")).lines[0]).toContain("--max-hold");
    const other = new HoldfastError("INVALID_ARGUMENT", "nodeTimeoutMs must be 1 or more.");
    expect(describeFailure(other).lines[0]).toContain("nodeTimeoutMs");
  });

  test("of several connections that failed the first is told", () => {
    const cause = new AggregateError([new Error("connect ECONNREFUSED 127.0.0.1:1"), new Error("another")]);
    expect(describeFailure(new StoreUnavailableError("Nobody is there.", { cause })).lines).toEqual([
      "holdfast: STORE_UNAVAILABLE: Nobody is there.",
      "  connect ECONNREFUSED 127.0.0.1:1",
    ]);
  });
});

test.skipIf(!canRunRedis())("a store that refuses says so, what to do, and no password", async () => {
  const redis = await startRedis(["--maxmemory", "1"]);
  atEnd(() => redis.stop());
  await redis.command("CONFIG", "SET", "requirepass", "s3cret");
  const url = `redis://:s3cret@127.0.0.1:${redis.port}`;
  const { code, stderr } = await run(["run", "k", "--store", url, "--timeout", "1s", "--", "true"]);
  expect(code).toBe(69);
  const [first, second] = stderr.split("\n");
  expect(first).toMatch(/^holdfast: STORE_UNAVAILABLE: .* it answered OOM\. .* Raise maxmemory/);
  expect(second).toMatch(/^ {2}OOM command not allowed/);
  expect(stderr).not.toMatch(/s3cret|did not answer/);
});
