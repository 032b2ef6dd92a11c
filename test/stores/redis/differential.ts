/**
 * Plays histories to the script on a real server and to the record machine, and compares all that can be seen: every
 * answer, who is told of which grant and how, and which keys are left in Redis.
 */
import { inspect, isDeepStrictEqual } from "node:util";
import { Redis } from "ioredis";
import type { Store } from "../../../src/store/store.ts";
import { redisStore } from "../../../src/stores/redis/index.ts";
import { SCRIPT } from "../../../src/stores/redis/script.ts";
import { Channels } from "./channels.ts";
import { type History, OWNERS, type Round, START_US, sayOperation } from "./differential-histories.ts";
import { type Grant, type KeyOperation, MachinePartition } from "./machine-partition.ts";
import { assertKeys, LOCKS } from "./partition-keys.ts";
import { TimedClient, timedScript } from "./timed-script.ts";

/**
 * The script lets Redis drop a key a second after its last claim has expired. A difference in a history that took
 * longer than that, while its own clock stood still, proves nothing, and the history is played again.
 */
const LONGEST_MS = 900;
const ATTEMPTS = 5;

/** How many rounds pass between two looks at the keys in Redis. */
const ROUNDS_PER_LOOK = 8;

export class Differential {
  /** How often each thing happened, so that a comparison cannot pass by never meeting a case. */
  readonly seen = new Map<string, number>();
  operations = 0;
  readonly #redis: Redis;
  readonly #channels: Channels;
  readonly #script: string;

  private constructor(redis: Redis, channels: Channels, script: string) {
    this.#redis = redis;
    this.#channels = channels;
    this.#script = script;
  }

  static async open(port: number, script = SCRIPT): Promise<Differential> {
    const redis = new Redis(port, "127.0.0.1");
    return new Differential(redis, await Channels.open(redis), script);
  }

  close(): void {
    this.#channels.close();
    this.#redis.disconnect();
  }

  /** Rejects with the story of the history where the two differ. */
  async play(history: History): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const startedMs = performance.now();
      const failure = await this.#playOnce(history).catch((error: Error) => error);
      if (failure === undefined) return;
      if (performance.now() - startedMs < LONGEST_MS || attempt === ATTEMPTS) throw failure;
    }
  }

  async #playOnce(history: History): Promise<void> {
    const script = timedScript(this.#script);
    const playing = new Playing(this.#redis, this.#channels, history, script, this.#count);
    await this.#redis.flushall();
    try {
      await playing.play();
    } catch (error) {
      throw new Error(`${playing.story}\n${reasonOf(error)}`, { cause: error });
    }
  }

  readonly #count = (what: string) => {
    if (what === "operation") this.operations += 1;
    this.seen.set(what, (this.seen.get(what) ?? 0) + 1);
  };
}

/** A round that was played, and what the machine answered. */
interface Played {
  readonly us: number;
  readonly round: Round;
  readonly answers: readonly unknown[];
}

/** What a batch should publish, and what it did. */
interface Published {
  readonly at: string;
  readonly expected: readonly Grant[];
  readonly actual: Promise<readonly Grant[]>;
}

/** One history on its way. */
class Playing {
  readonly #redis: Redis;
  readonly #channels: Channels;
  readonly #history: History;
  readonly #count: (what: string) => void;
  readonly #client: TimedClient;
  readonly #stores: readonly Store[];
  readonly #machine = new MachinePartition();
  readonly #told: Grant[] = [];
  /** The locks that have lost a part. What is left of the others stays until somebody wants the lock, or it expires. */
  readonly #damaged = new Set<string>();
  readonly #played: Played[] = [];
  readonly #published: Published[] = [];
  #us = START_US;
  #latestUs = START_US;
  #scriptKnown = false;

  constructor(
    redis: Redis,
    channels: Channels,
    history: History,
    script: string,
    count: (what: string) => void,
  ) {
    this.#redis = redis;
    this.#channels = channels;
    this.#history = history;
    this.#count = count;
    this.#client = new TimedClient(redis, script);
    this.#stores = OWNERS.map((owners, index) => {
      const store = redisStore(this.#client, { maxWaiters: history.maxWaiters[index]! });
      for (const owner of owners) {
        store.onGrant(owner, (refs) => {
          for (const { key, id, fence = 0n } of refs) this.#told.push({ key, id, owner, fence });
        });
      }
      return store;
    });
  }

  /** What has been done so far, for people. */
  get story(): string {
    const { maxWaiters } = this.#history;
    const setting = `The clients allow ${maxWaiters.join(" and ")} waiters.`;
    return [setting, ...this.#played.map(sayRound)].join("\n");
  }

  async play(): Promise<void> {
    // What a history that was given up has published is not this one's.
    await this.#channels.mark();
    for (const [index, round] of this.#history.rounds.entries()) {
      this.#us += round.afterUs;
      this.#latestUs = Math.max(this.#latestUs, this.#us);
      this.#client.us = this.#us;
      await this.#playRound(round);
      if (index % ROUNDS_PER_LOOK === 0) await this.#checkKeys();
    }
    await this.#checkKeys();
    for (const { at, expected, actual } of this.#published) {
      equal(`what was published ${at}`, inOrder(await actual), inOrder(expected));
    }
  }

  async #playRound(round: Round): Promise<void> {
    if (round.does === "batch") return this.#playBatch(round);
    if (round.does === "lose a part") return this.#losePart(round);
    this.#played.push({ us: this.#us, round, answers: [] });
    this.#count(round.does);
    if (round.does === "forget scripts") {
      await this.#redis.script("FLUSH");
      this.#scriptKnown = false;
    } else {
      await this.#redis.flushall();
      this.#machine.forget();
    }
  }

  /** A part that is left over from an earlier loss belongs to no claim, and the loss of it changes nothing. */
  async #losePart(round: Round): Promise<void> {
    const [{ key }] = round.operations as [KeyOperation];
    const isSpread = (await this.#redis.hget(LOCKS, key))?.startsWith("s") === true;
    const isField = round.part === "field";
    const lost = isField
      ? await this.#redis.hdel(LOCKS, key)
      : await this.#redis.del(`holdfast:{0}:${round.part}:${key}`);
    if (lost === 0 || !(isField || isSpread)) return;
    this.#played.push({ us: this.#us, round, answers: [] });
    this.#count(`lose ${isSpread ? "a shared" : "a lone"} lock's ${round.part}`);
    this.#damaged.add(key);
    this.#machine.forgetClaims(key, !isField);
  }

  async #playBatch(round: Round): Promise<void> {
    const { client, operations } = round;
    const { answers, grants } = this.#machine.apply(operations, this.#us, client);
    this.#played.push({ us: this.#us, round, answers });
    this.#countBatch(operations, answers);
    const own = (grant: Grant) => (OWNERS[client] as readonly string[]).includes(grant.owner);

    const callsBefore = this.#client.calls;
    const actual = await this.#ask(this.#stores[client]!, operations);
    for (const [index, operation] of operations.entries()) {
      equal(`the answer to ${sayOperation(operation)}`, actual[index], answers[index]);
    }
    const calls = this.#client.calls - callsBefore;
    // From 32 operations on they are two, one for the server to work on while the client does on the other.
    if (calls > (operations.length < 32 ? 1 : 2) && this.#scriptKnown) {
      throw new Error(`${operations.length} operations took ${calls} calls.`);
    }
    this.#scriptKnown = true;

    const told = this.#told.splice(0);
    equal("what the client itself was told", inOrder(told), inOrder(grants.filter(own)));
    const expected = grants.filter((grant) => !own(grant));
    this.#published.push({ at: sayTime(this.#us), expected, actual: this.#channels.mark() });
    for (const _ of told) this.#count("grant in the reply");
    for (const _ of expected) this.#count("grant published");
  }

  /** Asks for all of it in one turn of the event loop, in order. */
  async #ask(store: Store, operations: readonly KeyOperation[]): Promise<readonly unknown[]> {
    const answers: Promise<unknown>[] = [];
    for (const operation of operations) {
      answers.push(ask(store, operation));
      // An acquire may look at a subscription before it joins the batch.
      for (let tick = 0; tick < 3; tick++) await undefined;
    }
    // All of them, even where one fails: what is still under way would get into the next history.
    await Promise.allSettled(answers);
    return Promise.all(answers);
  }

  async #checkKeys(): Promise<void> {
    const latestMs = Math.floor(this.#latestUs / 1_000);
    await assertKeys(this.#redis, this.#machine.records, latestMs, this.#damaged);
  }

  #countBatch(operations: readonly KeyOperation[], answers: readonly unknown[]): void {
    for (const [index, { operation }] of operations.entries()) {
      const { state, reason, takenOverBy } = Object(answers[index]) as Record<string, string | undefined>;
      const kind = takenOverBy !== undefined ? "taken over" : (reason ?? state);
      this.#count("operation");
      this.#count(
        operation.does === "describe" ? "look" : `${operation.does} ${kind ?? String(answers[index])}`,
      );
    }
    if (new Set(operations.map(({ key }) => key)).size < operations.length)
      this.#count("a key twice in a batch");
    for (const { held, queue } of this.#machine.records.values()) {
      const claims = held.length + queue.length;
      this.#count(claims > 8 ? "a record with many" : "a record with few");
      if (claims > 100) this.#count("a record with more than a hundred");
    }
  }
}

async function ask(store: Store, { key, operation }: KeyOperation): Promise<unknown> {
  switch (operation.does) {
    case "acquire":
      return store.acquire(operation.request);
    case "renew":
      return (await store.renew([operation.ref]))[0];
    case "release":
      return (await store.release([operation.ref]))[0];
    case "describe":
      return (await store.look({ key, maxClaims: operation.maxClaims })).keys[0];
  }
}

function sayRound({ us, round: { does, part, client, operations }, answers }: Played): string {
  if (does === "lose a part") return `${sayTime(us)}, the lock ${operations[0]?.key} loses its ${part}`;
  if (does !== "batch") return `${sayTime(us)}, the server has to ${does}`;
  const lines = operations.map(
    (operation, index) => `    ${sayOperation(operation)} → ${inline(answers[index])}`,
  );
  return [`${sayTime(us)}, client ${client + 1}:`, ...lines].join("\n");
}

function sayTime(us: number): string {
  return `at ${(us - START_US) / 1_000} ms`;
}

/** With what the server itself said, where it refused a call. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : `${error.message}\n${reasonOf(error.cause)}`;
}

function inOrder(grants: readonly Grant[]): readonly string[] {
  return grants.map(({ key, id, owner, fence }) => JSON.stringify([key, id, owner, `${fence}`])).sort();
}

function equal(what: string, actual: unknown, expected: unknown): void {
  if (isDeepStrictEqual(actual, expected)) return;
  throw new Error(
    `By the rules, ${what} is\n  ${inline(expected)}\nand the script's is\n  ${inline(actual)}`,
  );
}

function inline(value: unknown): string {
  return inspect(value, { depth: 5, breakLength: Number.POSITIVE_INFINITY, maxArrayLength: 20 });
}
