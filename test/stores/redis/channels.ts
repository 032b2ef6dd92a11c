/** All that is published on a server, in order. */
import type { Redis } from "ioredis";
import type { Grant } from "./machine-partition.ts";

const WAKE = "holdfast:wake:";
const MARK = "mark";

export class Channels {
  readonly #publisher: Redis;
  readonly #subscriber: Redis;
  /** Those who wait for a mark, in order. */
  readonly #waiting: ((grants: readonly Grant[]) => void)[] = [];
  #heard: Grant[] = [];

  private constructor(publisher: Redis, subscriber: Redis) {
    this.#publisher = publisher;
    this.#subscriber = subscriber;
    subscriber.on("pmessage", (_pattern, channel: string, message: string) => this.#hear(channel, message));
  }

  static async open(publisher: Redis): Promise<Channels> {
    const channels = new Channels(publisher, publisher.duplicate());
    await channels.#subscriber.psubscribe("*");
    return channels;
  }

  /** Draws a line under what was published until now. Resolves to what stands between the last two lines. */
  async mark(): Promise<readonly Grant[]> {
    const heard = new Promise<readonly Grant[]>((resolve) => this.#waiting.push(resolve));
    await this.#publisher.publish(MARK, "");
    return heard;
  }

  close(): void {
    this.#subscriber.disconnect();
  }

  #hear(channel: string, message: string): void {
    if (channel === MARK) {
      this.#waiting.shift()?.(this.#heard);
      this.#heard = [];
    } else {
      const [key, id, fence] = JSON.parse(message) as [string, string, string];
      this.#heard.push({ key, id, owner: channel.slice(WAKE.length), fence: BigInt(fence) });
    }
  }
}
