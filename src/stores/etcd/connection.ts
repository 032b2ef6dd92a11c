/** Calls to etcd: each with a bound on its time, with errors that say what to do, and with what every answer tells besides. */
import type { Clock } from "../../platform/index.ts";
import { HoldfastError, StoreUnavailableError } from "../../store/index.ts";
import type {
  EtcdCallOptions,
  EtcdClient,
  EtcdHeader,
  EtcdRangeRequest,
  EtcdRangeResponse,
  EtcdStatus,
  EtcdTxnRequest,
  EtcdTxnResponse,
} from "./client.ts";
import { isOfClass, learnerError, mapError, restingError } from "./errors.ts";
import type { Keys } from "./keys.ts";
import { exists, getKey, isAbsent, put } from "./requests.ts";
import { noteSilence } from "./silence.ts";

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
  /** The same since revisions have last gone back. */
  #newest = 0n;
  #history = 0;
  #onSetBack: () => void = () => {};
  #onHeard: HeardListener = () => {};
  #greeting: Promise<void> | undefined;
  /** The look at the rights of the user, once there was one. */
  #mayWrite: Promise<unknown> | undefined;
  /** The last failure of a member. The client keeps away from one that has failed, and says then only that it does. */
  #lastOutage: Error | undefined;
  /** What is wrong with the only member that answers. It says what to do, and waiting would not help. */
  #learner: HoldfastError | undefined;

  constructor(client: EtcdClient, keys: Keys, clock: Clock, timeoutMs: number) {
    this.client = client;
    this.keys = keys;
    this.clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  get revision(): bigint {
    return this.#revision;
  }

  /** How often revisions have gone back. What was learnt in an earlier history may say something else in this one. */
  get history(): number {
    return this.#history;
  }

  onHeard(listener: HeardListener): void {
    this.#onHeard = listener;
  }

  async txn(request: EtcdTxnRequest, withinMs = this.#timeoutMs): Promise<EtcdTxnResponse> {
    const [sentMs, known] = [this.clock.monotonicMs(), this.#newest];
    const response = await this.call((options) => this.client.kv.txn(request, options), withinMs);
    this.#hear(response.header, sentMs, known);
    return response;
  }

  async range(request: EtcdRangeRequest): Promise<EtcdRangeResponse> {
    const [sentMs, known] = [this.clock.monotonicMs(), this.#newest];
    const response = await this.call((options) => this.client.kv.range(request, options));
    this.#hear(response.header, sentMs, known);
    return response;
  }

  #hear({ revision, raft_term: term }: EtcdHeader, sentMs: number, known: bigint): void {
    const told = BigInt(revision);
    if (told > this.#revision) this.#revision = told;
    if (told < known && known === this.#newest) this.#setBack(told);
    else if (told > this.#newest) this.#newest = told;
    this.#onHeard(term, sentMs);
  }

  /**
   * The cluster knew more when this was sent: it was restored from a backup. (1) The backup has a lease of P and a record without claims.
   * (2) P takes the lock, and the cluster is restored. (3) Q is granted it, at a lower revision than P's claim. (4) P's heartbeat asks
   * whether the record was written since its own revision, which it was not, and P would go on.
   */
  #setBack(told: bigint): void {
    this.#newest = told;
    this.#history++;
    this.#onSetBack();
  }

  onSetBack(listener: () => void): void {
    this.#onSetBack = listener;
  }

  /**
   * Makes a call that fails when it takes too long. The client is told a deadline as well, so that it does not wait for ever;
   * it compares it with the wall clock of the process, which may be set meanwhile. What counts is a clock that nobody sets.
   *
   * Its deadline is never short. It takes calls that miss theirs for failures of the server, and after three keeps away from it for five
   * seconds: where leases live for a second, a pause of a third of that would be an outage of everything else.
   */
  async call<R>(send: (options: EtcdCallOptions) => Promise<R>, withinMs = this.#timeoutMs): Promise<R> {
    const { clock } = this;
    let giveUp: (error: Error) => void = () => {};
    const tooLate = new Promise<never>((_, reject) => {
      giveUp = reject;
    });
    const timer = clock.setTimer(withinMs, () => {
      // Signs of life have less time: a server that pauses for that long is no news.
      if (withinMs > this.#timeoutMs / 2) noteSilence(this.client, this.#timeoutMs);
      giveUp(noAnswer(withinMs));
    });
    timer.keepAlive(true);
    try {
      const deadline = Date.now() + Math.max(withinMs, this.#timeoutMs);
      const answer = await Promise.race([send({ deadline }), tooLate]);
      this.#lastOutage = undefined;
      this.#learner = undefined;
      return answer;
    } catch (error) {
      throw this.#explained(error);
    } finally {
      timer.cancel();
    }
  }

  #explained(error: unknown): HoldfastError {
    const isResting = isOfClass(error, "BrokenCircuitError");
    if (isResting && this.#learner !== undefined) return this.#learner;
    if (isResting && this.#lastOutage !== undefined) return restingError(this.#lastOutage);
    // Another member may be what fails now. What is said of the learner is found anew.
    if (!isResting) this.#learner = undefined;
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
    let isLearner = false;
    try {
      const status = await this.#status();
      isLearner = status?.isLearner === true;
      if (status !== undefined) checkVersion(status.version);
      // Where the client has several hosts, a member that votes may answer this.
      await this.range({ key: this.keys.swept });
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      if (isLearner && error.code === "STORE_UNAVAILABLE") {
        // The client keeps away from a learner as from any member that has failed.
        this.#learner = learnerError(error.cause);
        throw this.#learner;
      }
      // There is nothing wrong with these requests, so what is invalid about one is that nobody in particular makes it.
      if (!isOfClass(error.cause, "GRPCInvalidArgumentError")) throw error;
      throw new HoldfastError(
        "UNAUTHORIZED",
        "etcd requires a login. Give the client a username and a password, in its option auth.",
        { cause: error.cause },
      );
    }
  }

  /**
   * Asks once whether the user of the client may write. Before 3.4.42, 3.5.28 and 3.6.9, etcd does not look at the rights for what is in a
   * transaction within another one: whoever may only read would free locks of others without having been told that it must not.
   */
  checkWriting(): Promise<unknown> {
    const { swept } = this.keys;
    // Of this, etcd looks at the rights for both outcomes, and it never does the first.
    this.#mayWrite ??= this.txn({
      compare: [exists(swept), isAbsent(swept)],
      success: [put(swept, "")],
      failure: [getKey(swept)],
    }).catch((error: unknown) => {
      this.#mayWrite = undefined;
      throw error;
    });
    return this.#mayWrite;
  }

  /** Something was written by itself, so that etcd has looked at the rights. */
  hasWritten(): void {
    this.#mayWrite ??= Promise.resolve();
  }

  /** Undefined where the server tells only administrators, as some of etcd 3.6 do. None before did, so it is new enough. */
  async #status(): Promise<EtcdStatus | undefined> {
    try {
      return await this.call((options) => this.client.maintenance.status(options));
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
    `etcd ${version} is too old. Upgrade the servers to etcd 3.4 or newer.`,
  );
}

function noAnswer(withinMs: number): StoreUnavailableError {
  return new StoreUnavailableError(
    `etcd did not answer within ${Math.round(withinMs)} ms. The result of the request is unknown.`,
  );
}
