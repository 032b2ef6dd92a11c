/**
 * The production script with the test's time instead of the server's: the one place where it asks for the time is
 * replaced by two further arguments. Nothing of this is known to the script itself.
 */
import { createHash } from "node:crypto";
import type { Redis } from "ioredis";
import type { IoRedisClient } from "../../../src/stores/redis/connection.ts";
import { SCRIPT } from "../../../src/stores/redis/script.ts";

const TIME = /\b(?:redis\.)?call\('TIME'\)/g;
const SWEEPS = /\bus % 64 < n\b/g;

/**
 * The script with time from its last two arguments. Unless it is told to, it does not sweep: what was swept cannot come back to life
 * when the time is set back, as it can for the record machine.
 */
export function timedScript(script: string, { sweeps = false } = {}): string {
  const timed = replaceOnce(script, TIME, "{ ARGV[#ARGV - 1], ARGV[#ARGV] }");
  return replaceOnce(timed, SWEEPS, sweeps ? "us % 64 < n" : "false");
}

function replaceOnce(text: string, pattern: RegExp, replacement: string): string {
  const found = text.match(pattern)?.length ?? 0;
  if (found !== 1)
    throw new Error(`${pattern} should stand in the script once, and stands there ${found} times.`);
  return text.replace(pattern, () => replacement);
}

const sha1 = (text: string) => createHash("sha1").update(text).digest("hex");

/** A client for `redisStore` that sends a timed script in the place of the production one. It hears no channel. */
export class TimedClient implements IoRedisClient {
  readonly status = "ready";
  /** The server's time, in microseconds. */
  us = 0;
  /** How many script calls were sent. */
  calls = 0;
  readonly #redis: Redis;
  readonly #standIns: ReadonlyMap<string, string>;

  constructor(redis: Redis, script: string) {
    this.#redis = redis;
    this.#standIns = new Map([
      [SCRIPT, script],
      [sha1(SCRIPT), sha1(script)],
    ]);
  }

  call(command: string, ...args: string[]): Promise<unknown> {
    const sent = args.map((arg) => this.#standIns.get(arg) ?? arg);
    if (/^eval(sha)?$/i.test(command)) {
      // What a store asks before its first use is not one of them.
      if (args.some((arg) => this.#standIns.has(arg))) this.calls += 1;
      sent.push(String(Math.floor(this.us / 1_000_000)), String(this.us % 1_000_000));
    }
    return this.#redis.call(command, ...sent);
  }

  duplicate(): IoRedisClient {
    return this;
  }
  async subscribe(): Promise<void> {}
  async unsubscribe(): Promise<void> {}
  on(event: string, listener: () => void): void {
    // It is connected from the start, and so are its duplicates.
    if (event === "ready") queueMicrotask(listener);
  }
  off(): void {}
  disconnect(): void {}
}
