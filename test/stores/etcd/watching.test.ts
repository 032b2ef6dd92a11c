/** The one stream of watches: when it is opened anew, and what is told of that. */
import { EventEmitter } from "node:events";
import { ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";
import type { EtcdWatchRequest } from "../../../src/stores/etcd/client.ts";
import type { Connection } from "../../../src/stores/etcd/connection.ts";
import { Keys } from "../../../src/stores/etcd/keys.ts";
import { Watching } from "../../../src/stores/etcd/wake.ts";

/** Streams that note what they are asked for, and answer when a test says so. */
class Stream extends EventEmitter {
  readonly asked: EtcdWatchRequest[] = [];
  write(request: EtcdWatchRequest): void {
    this.asked.push(request);
  }
  end(): void {}
  cancel(): void {}
  answer(response: { watch_id: string; created?: boolean; canceled?: boolean }): void {
    this.emit("data", { created: false, canceled: false, events: [], ...response });
  }
}

function open() {
  const clock = new ManualClock();
  const streams: Stream[] = [];
  const told = { gaps: 0, requests: 0 };
  const watch = async () => {
    const stream = new Stream();
    streams.push(stream);
    return stream;
  };
  const range = async () => {
    told.requests++;
  };
  const connection = { clock, keys: new Keys("holdfast"), client: { watchClient: { watch } }, range };
  const watching = new Watching(connection as unknown as Connection, () => {
    told.gaps++;
  });
  const begin = (name: string) =>
    watching.watch({ prefix: Buffer.from(name), what: "written", onEvent: () => {} });
  return { clock, streams, told, watching, begin };
}

test("etcd: a stream that was opened anew tells once that something may have been missed, and newcomers do not", async () => {
  const { clock, streams, told, watching, begin } = open();
  const watches = ["a", "b", "c"].map(begin);
  await clock.advance(0);
  for (const id of ["1", "2", "3"]) streams[0]?.answer({ watch_id: id, created: true });
  expect(told.gaps).toBe(1);
  const newcomer = begin("d");
  streams[0]?.answer({ watch_id: "4", created: true });
  await Promise.all([...watches, newcomer]);
  expect(told.gaps).toBe(1);

  streams[0]?.emit("end");
  await clock.advance(100);
  for (const id of ["4", "3", "2"]) streams[1]?.answer({ watch_id: id, created: true });
  expect(told.gaps).toBe(1);
  // The last one is not wanted any more, before it has begun.
  (await watches[0])?.();
  expect(told.gaps).toBe(2);
  watching.close();
});

test("etcd: a refusal opens another stream after a request, and whoever has never watched is told in the end", async () => {
  const { clock, streams, told, watching, begin } = open();
  const known = begin("known");
  await clock.advance(0);
  streams[0]?.answer({ watch_id: "1", created: true });
  await known;
  const refused = expect(begin("new")).rejects.toThrow("refuses");
  for (let nth = 0; nth < 3; nth++) {
    streams.at(-1)?.answer({ watch_id: "-1", created: true, canceled: true });
    await clock.advance(2_000);
  }
  await refused;
  expect(told.requests).toBe(3);
  // What has been watched before is watched on.
  expect(streams).toHaveLength(4);
  expect(streams.at(-1)?.asked.map(({ create_request: request }) => request?.watch_id)).toEqual(["1"]);
  watching.close();
});

test("etcd: whoever begins to watch when the store is closed is told so", async () => {
  const { streams, watching, begin } = open();
  watching.close();
  await expect(begin("late")).rejects.toThrow("The store is closed.");
  expect(streams).toEqual([]);
});
