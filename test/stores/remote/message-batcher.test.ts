/** How what a session has to say becomes messages. */
import { Writable } from "node:stream";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { FrameSplitter, readRequest } from "../../../src/protocol/index.ts";
import { MessageBatcher } from "../../../src/stores/remote/message-batcher.ts";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

/** An outbox, and how many operations were in each message that it has sent. */
function world({ maxBytes = 1_000_000, maxOperations = 1_000, takes = true } = {}) {
  const sent: number[] = [];
  const sizes: number[] = [];
  const splitter = new FrameSplitter(10_000_000);
  let overflows = 0;
  const stream = new Writable({
    highWaterMark: takes ? 1e9 : 1,
    write(piece: Buffer, _, done) {
      if (!takes) return;
      for (const message of splitter.push(piece)) {
        sizes.push(message.length);
        sent.push(readRequest(message, 100_000).operations.length);
      }
      done();
    },
  });
  const outbox = new MessageBatcher(stream, () => overflows++);
  outbox.allow(maxBytes, maxOperations);
  let number = 0;
  /** Asks for so many things in one turn of the event loop. Resolves to the messages that they are in. */
  const ask = async (count: number, key = "k") => {
    const messages = new Set<number>();
    for (let each = 0; each < count; each++) {
      outbox.makeRoom(3 * key.length + 100, 1);
      messages.add(outbox.number);
      outbox.writer.release(++number, [{ key, id: "i", token: "t" }]);
    }
    await new Promise((resolve) => setImmediate(resolve));
    return [...messages];
  };
  return { outbox, sent, sizes, ask, overflows: () => overflows };
}

test("what is asked in one turn of the event loop goes out as one message", async () => {
  const { sent, ask } = world();
  expect(await ask(20)).toEqual([1]);
  expect(sent).toEqual([20]);
});

describe("with two messages under way", () => {
  test("what is asked waits for the answer to the first, and goes out together", async () => {
    const { outbox, sent, ask } = world();
    await ask(1);
    await ask(1);
    await ask(1);
    await ask(1);
    expect(sent).toEqual([1, 1]);
    outbox.answered(1);
    await ask(1);
    expect(sent).toEqual([1, 1, 3]);
  });

  test("an answer to the second is one to the first as well, since the server reads them in order", async () => {
    const { outbox, sent, ask } = world();
    for (let turn = 0; turn < 4; turn++) await ask(1);
    outbox.answered(2);
    await ask(0);
    // Nothing is under way but this, so that the next need not wait.
    await ask(1);
    expect(sent).toEqual([1, 1, 2, 1]);
  });

  test("what gets no answer for a millisecond holds nothing back any longer", async () => {
    const { sent, ask } = world();
    for (let turn = 0; turn < 5; turn++) await ask(1);
    expect(sent).toEqual([1, 1]);
    vi.advanceTimersByTime(1);
    expect(sent).toEqual([1, 1, 3]);
    await ask(1);
    vi.advanceTimersByTime(1);
    expect(sent).toEqual([1, 1, 3, 1]);
  });

  test("a subscription is no operation, and is not waited for", async () => {
    const { outbox, sent, ask } = world();
    for (const owner of ["a", "b", "c"]) {
      outbox.makeRoom(10, 0);
      outbox.writer.listen(owner);
      await ask(0);
    }
    expect(sent).toEqual([0, 0, 0]);
    expect(await ask(1)).toEqual([1]);
    expect(sent).toEqual([0, 0, 0, 1]);
  });
});

test("when all is answered, the next goes out in two halves, so that both ends work", async () => {
  const { outbox, sent, ask } = world();
  await ask(100);
  outbox.answered(1);
  expect(await ask(100)).toEqual([2, 3]);
  expect(sent).toEqual([100, 50, 50]);
  outbox.answered(3);
  // However many there are: halves are for as many as there were.
  await ask(300);
  expect(sent.slice(3)).toEqual([50, 250]);
});

test("a message is no longer than the server reads, and has no more operations than it takes", async () => {
  const { sent, sizes, ask } = world({ maxBytes: 2_000, maxOperations: 10 });
  await ask(35);
  vi.advanceTimersByTime(1);
  expect(sent).toEqual([10, 10, 10, 5]);
  await ask(9, "x".repeat(500));
  vi.advanceTimersByTime(1);
  expect(sent.slice(4)).toEqual([1, 1, 1, 1, 1, 1, 1, 1, 1]);
  expect(Math.max(...sizes)).toBeLessThan(2_000);
});

test("a server that reads nothing is an outage once too much waits for it", async () => {
  const { ask, overflows } = world({ takes: false, maxBytes: 10_000_000 });
  for (let turn = 0; turn < 60 && overflows() === 0; turn++) {
    await ask(10, "x".repeat(200_000));
    vi.advanceTimersByTime(1);
  }
  expect(overflows()).toBe(1);
});

test("nothing is sent after the end", async () => {
  const { outbox, sent, ask } = world();
  for (let turn = 0; turn < 3; turn++) await ask(1);
  outbox.close();
  vi.advanceTimersByTime(1);
  await ask(1);
  expect(sent).toEqual([1, 1]);
});
