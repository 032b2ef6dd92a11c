/** Calls to etcd: each with a bound on its time, with errors that say what to do, and with what every answer tells besides. */
import { type Clock, HoldfastError, StoreUnavailableError } from "../../core/index.ts";
import type {
  EtcdCallOptions,
  EtcdClient,
  EtcdHeader,
  EtcdRangeRequest,
  EtcdRangeResponse,
  EtcdTxnRequest,
  EtcdTxnResponse,
} from "./client.ts";
import { isOfClass, mapError, restingError } from "./errors.ts";
import type { Keys } from "./keys.ts";

/** Told of every answer that a majority stands behind: in which term of a leader, and when it was asked for. */
export type HeardListener = (term: string, sentMs: number) => void;

const OLDEST = [3, 4] as const;

export class Connection {
  readonly client: EtcdClient;
  readonly clock: Clock;
  readonly keys: Keys;
  readonly #timeoutMs: number;
  /** The highest revision that an answer has told. */
  #revision = 0n;
  #onHeard: HeardListener = () => {};
  #greeting: Promise<void> | undefined;
  /** The last failure of a member. The client keeps away from one that has failed, and says then only that it does. */
  #lastOutage: Error | undefined;

  constructor(client: EtcdClient, keys: Keys, clock: Clock, timeoutMs: number) {
    this.client = client;
    this.keys = keys;
    this.clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  get revision(): bigint {
    return this.#revision;
  }

  onHeard(listener: HeardListener): void {
    this.#onHeard = listener;
  }

  async txn(request: EtcdTxnRequest, withinMs = this.#timeoutMs): Promise<EtcdTxnResponse> {
    const sentMs = this.clock.monotonicMs();
    const response = await this.call((options) => this.client.kv.txn(request, options), withinMs);
    this.#hear(response.header, sentMs);
    return response;
  }

  async range(request: EtcdRangeRequest): Promise<EtcdRangeResponse> {
    const sentMs = this.clock.monotonicMs();
    const response = await this.call((options) => this.client.kv.range(request, options));
    this.#hear(response.header, sentMs);
    return response;
  }

  #hear({ revision, raft_term: term }: EtcdHeader, sentMs: number): void {
    const told = BigInt(revision);
    if (told > this.#revision) this.#revision = told;
    this.#onHeard(term, sentMs);
  }

  /**
   * Makes a call that fails when it takes too long. The client is told the deadline as well, so that it does not wait for ever;
   * it compares it with the wall clock of the process, which may be set meanwhile. What counts is a clock that nobody sets.
   */
  async call<R>(send: (options: EtcdCallOptions) => Promise<R>, withinMs = this.#timeoutMs): Promise<R> {
    const { clock } = this;
    let giveUp: (error: Error) => void = () => {};
    const tooLate = new Promise<never>((_, reject) => {
      giveUp = reject;
    });
    const timer = clock.setTimer(withinMs, () => giveUp(noAnswer(withinMs)));
    timer.keepAlive(true);
    try {
      const answer = await Promise.race([send({ deadline: Date.now() + withinMs }), tooLate]);
      this.#lastOutage = undefined;
      return answer;
    } catch (error) {
      throw this.#explained(error);
    } finally {
      timer.cancel();
    }
  }

  #explained(error: unknown): HoldfastError {
    const isResting = isOfClass(error, "BrokenCircuitError");
    if (isResting && this.#lastOutage !== undefined) return restingError(this.#lastOutage);
    const mapped = mapError(error);
    if (!isResting && mapped.code === "STORE_UNAVAILABLE" && error instanceof Error) this.#lastOutage = error;
    return mapped;
  }

  /** Asks once whether the server can serve this store at all. What failed is asked again by the next call. */
  greet(): Promise<void> {
    this.#greeting ??= this.#greet().catch((error: unknown) => {
      this.#greeting = undefined;
      throw error;
    });
    return this.#greeting;
  }

  async #greet(): Promise<void> {
    try {
      const version = await this.#version();
      if (version !== undefined) checkVersion(version);
      await this.range({ key: this.keys.swept });
    } catch (error) {
      // There is nothing wrong with these requests, so what is invalid about one is that nobody in particular makes it.
      if (!(error instanceof HoldfastError) || !isOfClass(error.cause, "GRPCInvalidArgumentError"))
        throw error;
      throw new HoldfastError(
        "UNAUTHORIZED",
        "etcd wants the client to log in: give the client a username and a password, with its option auth.",
        { cause: error.cause },
      );
    }
  }

  /** Undefined where the server tells only administrators, as some of etcd 3.6 do. None before did, so it is new enough. */
  async #version(): Promise<string | undefined> {
    try {
      return (await this.call((options) => this.client.maintenance.status(options))).version;
    } catch (error) {
      if (error instanceof HoldfastError && isOfClass(error.cause, "EtcdPermissionDeniedError"))
        return undefined;
      throw error;
    }
  }
}

/** Before 3.4 there were no transactions within transactions, or not everywhere; and no names for watches. */
function checkVersion(version: string): void {
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(version) ?? [];
  if (major === undefined || Number(major) > OLDEST[0]) return;
  if (Number(major) === OLDEST[0] && Number(minor) >= OLDEST[1]) return;
  throw new HoldfastError(
    "UNSUPPORTED",
    `etcd ${version} is too old. The store needs etcd 3.4 or newer: upgrade the servers.`,
  );
}

function noAnswer(withinMs: number): StoreUnavailableError {
  return new StoreUnavailableError(
    `etcd did not answer within ${Math.round(withinMs)} ms. Whether it did what was asked is unknown.`,
  );
}
