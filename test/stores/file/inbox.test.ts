/** Letters for a folder's thread: it looks for the next one for a moment, where that is likely to come. */
import { once } from "node:events";
import { MessageChannel, type MessagePort } from "node:worker_threads";
import { describe, expect, onTestFinished, test } from "vitest";
import { Inbox } from "../../../src/stores/file/inbox.js";
import type { Letter } from "../../../src/stores/file/protocol.ts";

const letter = (number: number): Letter => ({ number, request: { verb: "read", keys: [] } });

class Scene {
  nowMs = 0;
  /** How often the clock was looked at, and what happens when. */
  looks = 0;
  onLook: (look: number) => void = () => {};
  /** How often mail came while nobody looked. */
  told = 0;
  readonly program: MessagePort;
  readonly inbox: Inbox;

  constructor(processors = 2) {
    const { port1, port2 } = new MessageChannel();
    this.program = port1;
    const nowMs = () => {
      this.nowMs += 0.01;
      this.onLook(++this.looks);
      return this.nowMs;
    };
    this.inbox = new Inbox(port2, () => this.told++, { nowMs, processors });
    port2.on("message", () => {});
    onTestFinished(() => port1.close());
  }

  /** Writes a letter, which the thread hears of in a turn of its event loop. */
  async hear(number: number): Promise<void> {
    const before = this.told;
    this.program.postMessage(letter(number));
    while (this.told === before) await new Promise((resolve) => setImmediate(resolve));
  }

  /** Looks for a letter that does not come. Tells whether it was looked for. */
  lookInVain(): boolean {
    const before = this.looks;
    expect(this.inbox.comesSoon()).toBe(false);
    return this.looks > before;
  }
}

describe("file: the inbox of a folder's thread", () => {
  test("hands out what has come, in order, and no more than is asked for", async () => {
    const scene = new Scene();
    await scene.hear(1);
    for (const number of [2, 3]) scene.program.postMessage(letter(number));
    expect(scene.inbox.hasMail).toBe(true);
    expect(scene.inbox.take(2)).toEqual([letter(1), letter(2)]);
    expect(scene.inbox.take(2)).toEqual([letter(3)]);
    expect(scene.inbox.hasMail).toBe(false);
  });

  test("finds a letter that comes while it looks", async () => {
    const scene = new Scene();
    await scene.hear(1);
    scene.inbox.take(1);
    const lookAt = scene.looks + 20;
    scene.onLook = (look) => look === lookAt && scene.program.postMessage(letter(2));
    expect(scene.inbox.comesSoon()).toBe(true);
    expect(scene.inbox.take(1)).toEqual([letter(2)]);
    // It was taken, so the event loop does not bring it once more.
    await new Promise((resolve) => setImmediate(resolve));
    expect(scene.told).toBe(1);
  });

  test("looks for half a millisecond at the most", () => {
    const scene = new Scene();
    const beganMs = scene.nowMs;
    expect(scene.lookInVain()).toBe(true);
    expect(scene.nowMs - beganMs).toBeCloseTo(0.52, 1);
  });

  test("looks ever more seldom where letters come late, up to once in 1,025 times", () => {
    const scene = new Scene();
    const looked: number[] = [];
    for (let answer = 0; answer < 3_000; answer++) if (scene.lookInVain()) looked.push(answer);
    const between = looked.map((place, index) => place - (looked[index - 1] ?? -1) - 1);
    expect(between).toEqual([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024]);
  });

  test("looks each time again after one that came in time", () => {
    const scene = new Scene();
    for (let look = 0; look < 10 && scene.lookInVain(); look++);
    scene.program.postMessage(letter(2));
    expect(scene.inbox.comesSoon()).toBe(true);
    expect(scene.lookInVain()).toBe(true);
    expect(scene.lookInVain()).toBe(false);
    expect(scene.lookInVain()).toBe(true);
  });

  test("lets the event loop have a turn every 20 ms, however many letters come", async () => {
    const scene = new Scene();
    let turns = 0;
    const count = () => {
      turns++;
      immediate = setImmediate(count);
    };
    let immediate = setImmediate(count);
    onTestFinished(() => clearImmediate(immediate));
    // Heard by the event loop, all in one turn of it.
    for (let number = 0; number < 500; number++) scene.program.postMessage(letter(number));
    await scene.inbox.turn();
    const before = turns;
    for (let served = 0; served < 100; served++) {
      scene.nowMs += 0.99;
      await scene.inbox.turn();
    }
    expect(turns - before).toBe(5);
  });

  test("does not keep the only processor from the program", () => {
    const scene = new Scene(1);
    expect(scene.lookInVain()).toBe(false);
  });

  test("hears that the program is gone", async () => {
    const { port1, port2 } = new MessageChannel();
    const inbox = new Inbox(port2, () => {}, { processors: 2 });
    const closed = once(port2, "close");
    port1.close();
    await closed;
    expect(inbox.comesSoon()).toBe(false);
    expect(inbox.take(1)).toEqual([]);
  });
});
