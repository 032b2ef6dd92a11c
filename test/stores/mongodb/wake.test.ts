/**
 * The change stream, over one that the test feeds: only a replica set of MongoDB itself has a real one, and where that runs,
 * `driverContract` uses it.
 */
import { describe, expect, test } from "vitest";
import type { Document, Records } from "../../../src/stores/mongodb/client.ts";
import { namesOneOf, readWakes, WakeStream } from "../../../src/stores/mongodb/wake.ts";
import { until } from "../../engines/engine.ts";

/** Streams that a test can feed and break. */
class Streams {
  readonly opened: FedStream[] = [];
  refusals: Error[] = [];
  readonly records = {
    watch: (pipeline: readonly Document[], options: Document) => {
      const stream = new FedStream(this.refusals.shift(), pipeline, options);
      this.opened.push(stream);
      return stream;
    },
  } as unknown as Records;

  get last(): FedStream {
    return this.opened.at(-1)!;
  }
}

class FedStream {
  readonly pipeline: readonly Document[];
  readonly options: Document;
  resumeToken: unknown = "token 0";
  closed = false;
  /** What its end has to wait for. */
  closing: Promise<void> | undefined;
  readonly #refusal: Error | undefined;
  #opened = () => {};
  #take: { resolve(change: Document): void; reject(error: Error): void } | undefined;
  #fed = 0;

  constructor(refusal: Error | undefined, pipeline: readonly Document[], options: Document) {
    this.#refusal = refusal;
    this.pipeline = pipeline;
    this.options = options;
  }

  once(_event: "resumeTokenChanged", listener: () => void): void {
    this.#opened = listener;
  }

  next(): Promise<Document> {
    return new Promise((resolve, reject) => {
      this.#take = { resolve, reject };
      if (this.#refusal === undefined) this.#opened();
      else reject(this.#refusal);
    });
  }

  async close(): Promise<void> {
    this.closed = true;
    this.#take?.reject(new Error("closed"));
    await this.closing;
  }

  async feed(change: Document): Promise<void> {
    this.resumeToken = `token ${++this.#fed}`;
    this.#take?.resolve(change);
    await new Promise(setImmediate);
  }

  async break(): Promise<void> {
    this.#take?.reject(new Error("broken"));
    await new Promise(setImmediate);
  }
}

const updated = (key: string, ...wakes: string[][]) => ({
  operationType: "update",
  documentKey: { _id: key },
  updateDescription: { updatedFields: { wakes: JSON.stringify(wakes) } },
});

const inserted = (key: string, ...wakes: string[][]) => ({
  operationType: "insert",
  documentKey: { _id: key },
  fullDocument: { wakes: JSON.stringify(wakes) },
});

function listenTo(stream: WakeStream, owner: string) {
  const told: string[] = [];
  return { told, ended: stream.listen(owner, (key, id) => told.push(`${key} ${id}`)) };
}

describe("mongodb: the stream of wakes", () => {
  test("tells each owner of its own, from inserts and updates", async () => {
    const streams = new Streams();
    const wakes = new WakeStream(streams.records);
    const { told, ended } = listenTo(wakes, "me");
    await ended;
    await streams.last.feed(updated("a", ["me", "1"], ["you", "2"], ["me", "3"]));
    await streams.last.feed(inserted("b", ["me", "4"]));
    await streams.last.feed({ operationType: "update", documentKey: { _id: "c" } });
    expect(told).toEqual(["a 1", "a 3", "b 4"]);
    await wakes.close();
    expect(streams.opened.map(({ closed }) => closed)).toEqual([true]);
  });

  test("is one for all owners, and goes on where the one before had come to", async () => {
    const streams = new Streams();
    const wakes = new WakeStream(streams.records);
    const first = listenTo(wakes, "one");
    await first.ended;
    await streams.last.feed(updated("a", ["one", "1"]));
    const second = listenTo(wakes, "two");
    await second.ended;
    expect(streams.opened.map(({ closed }) => closed)).toEqual([true, false]);
    expect(streams.last.options["resumeAfter"]).toBe("token 1");
    await streams.last.feed(updated("b", ["one", "2"], ["two", "3"]));
    expect([first.told, second.told]).toEqual([["a 1", "b 2"], ["b 3"]]);
    (await first.ended)();
    expect(streams.last.closed).toBe(false);
    (await second.ended)();
    expect(streams.last.closed).toBe(true);
    await wakes.close();
  });

  test("that breaks is opened again, from now on if it cannot resume", async () => {
    const streams = new Streams();
    const wakes = new WakeStream(streams.records);
    const { told, ended } = listenTo(wakes, "me");
    await ended;
    await streams.last.feed(updated("a", ["me", "1"]));
    streams.refusals = [new Error("history lost")];
    await streams.last.break();
    await until("it was opened twice more", async () => streams.opened.length === 3);
    expect(streams.opened.map(({ options }) => options["resumeAfter"])).toEqual([
      undefined,
      "token 1",
      undefined,
    ]);
    await new Promise(setImmediate);
    await streams.last.feed(updated("b", ["me", "2"]));
    expect(told).toEqual(["a 1", "b 2"]);
    await wakes.close();
    expect(streams.opened.every(({ closed }) => closed)).toBe(true);
  });

  test("that cannot be opened fails the listener, and the next one tries again", async () => {
    const streams = new Streams();
    const wakes = new WakeStream(streams.records);
    streams.refusals = [new Error("no rights")];
    await expect(wakes.listen("me", () => {})).rejects.toThrow("no rights");
    expect(streams.last.closed).toBe(true);
    const { told, ended } = listenTo(wakes, "me");
    await ended;
    await streams.last.feed(updated("a", ["me", "1"]));
    expect(told).toEqual(["a 1"]);
    await wakes.close();
  });

  test("is closed once the server has closed it, also if the last owner has left before", async () => {
    const streams = new Streams();
    const wakes = new WakeStream(streams.records);
    const leave = await listenTo(wakes, "me").ended;
    let told = () => {};
    streams.last.closing = new Promise((resolve) => {
      told = resolve;
    });
    leave();
    let closed = false;
    const closing = wakes.close().then(() => {
      closed = true;
    });
    await new Promise(setImmediate);
    expect(closed).toBe(false);
    told();
    await closing;
  });

  test("asks the server for changes that name one of its owners, and nothing else", () => {
    const owners = ["client-1", 'a"b\\c', "x.*", "ключ"];
    const { $or } = namesOneOf(owners) as { $or: { "fullDocument.wakes"?: { $regex: string } }[] };
    const pattern = new RegExp($or[0]!["fullDocument.wakes"]!.$regex);
    for (const owner of owners)
      expect(
        pattern.test(
          JSON.stringify([
            ["you", "1"],
            [owner, "2"],
          ]),
        ),
      ).toBe(true);
    for (const other of ["client-11", "a", "xyz", "client-"]) {
      expect(pattern.test(JSON.stringify([[other, "client-1"]])), other).toBe(false);
    }
  });

  test("an unreadable change wakes no waiter", () => {
    for (const text of [undefined, null, 7, "", "{", []]) expect(readWakes(text)).toEqual([]);
  });
});
