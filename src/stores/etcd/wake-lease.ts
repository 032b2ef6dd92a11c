/**
 * The lease that wake-ups hang on, so that they are removed whether or not somebody has seen them. It is not kept alive: it is
 * used for half of its life, and then there is another one.
 */
import type { Connection } from "./connection.ts";

const LIFE_S = 60;
const USED_MS = (1_000 * LIFE_S) / 2;

export class WakeLease {
  readonly #connection: Connection;
  #granting: Promise<string> | undefined;
  #grantedMs = Number.NEGATIVE_INFINITY;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** The id of a lease that lives for a while yet. */
  id(): Promise<string> {
    const nowMs = this.#connection.clock.monotonicMs();
    if (this.#granting === undefined || nowMs - this.#grantedMs > USED_MS) {
      this.#grantedMs = nowMs;
      this.#granting = this.#grant().catch((error: unknown) => {
        this.forget();
        throw error;
      });
    }
    return this.#granting;
  }

  /** It has ended. */
  forget(): void {
    this.#granting = undefined;
  }

  async #grant(): Promise<string> {
    const { leaseClient } = this.#connection.client;
    const { ID } = await this.#connection.call((options) => leaseClient.leaseGrant({ TTL: LIFE_S }, options));
    return ID;
  }
}
