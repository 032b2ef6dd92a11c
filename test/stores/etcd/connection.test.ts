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
