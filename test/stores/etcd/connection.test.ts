/** How long calls are waited for, here and by the client. */
import { ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";
import { Connection } from "../../../src/stores/etcd/connection.ts";
import { Keys } from "../../../src/stores/etcd/keys.ts";

// The client takes three calls that miss their deadlines for an outage of the server, and keeps away from it.
test("etcd: a call with little time is given up here, while the client is told the deadline of any call", async () => {
  const deadlines: number[] = [];
  const txn = (_: unknown, { deadline }: { deadline: number }) => {
    deadlines.push(deadline);
    return new Promise(() => {});
  };
  const clock = new ManualClock();
  const connection = new Connection({ kv: { txn } } as never, new Keys("holdfast"), clock, 60_000);
  const sentMs = Date.now();
  const failed = expect(connection.txn({}, 50)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  await clock.advance(50);
  await failed;
  expect(deadlines[0]).toBeGreaterThanOrEqual(sentMs + 60_000);
});

test("etcd: what was said of a learner is not said of another member that fails later", async () => {
  class GRPCUnavailableError extends Error {}
  class BrokenCircuitError extends Error {}
  let failure: Error = new GRPCUnavailableError("a learner serves nobody");
  const fail = async () => {
    throw failure;
  };
  const status = async () => ({ version: "3.5.0", isLearner: true });
  const client = { kv: { txn: fail, range: fail }, maintenance: { status } };
  const connection = new Connection(client as never, new Keys("holdfast"), new ManualClock(), 1_000);
  const resting = async () => {
    failure = new BrokenCircuitError("the client rests");
    return connection.txn({});
  };
  await expect(connection.greet()).rejects.toThrow("member promote");
  await expect(resting()).rejects.toThrow("member promote");
  failure = new GRPCUnavailableError("a voter is gone");
  await expect(connection.txn({})).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  await expect(resting()).rejects.toThrow("a voter is gone");
});
