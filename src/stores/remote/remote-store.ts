import { readDurability, type session } from "../../protocol/index.ts";
import {
  type AcquireAnswer,
  type ClaimRef,
  type ClaimRequest,
  checkQuery,
  checkRenewRef,
  checkRequest,
  closedStore,
  type Durability,
  durabilities,
  type GrantListener,
  HoldfastError,
  type LookPage,
  type LookQuery,
  type RenewAnswer,
  type RenewRef,
  type Store,
  type Unsubscribe,
} from "../../store/index.ts";
import type { Connection } from "./connection.ts";
import { Failover } from "./failover.ts";
import { type RemoteSettings, type RemoteStoreOptions, resolveRemoteOptions } from "./options.ts";
import { WaitingClaims } from "./waiting-claims.ts";

/** The name of this library for servers. */
const AGENT = "holdfast-node";

/**
 * The store of a lock server. Several URLs are servers over the same store, which are tried in turn.
 *
 * It connects at the first use, so the durability is that of the options. {@link connectRemote} asks the server.
 *
 * @example
 * const locks = createLocks(remoteStore("http://locks:7420", { token }));
 */
export function remoteStore(urls: string | readonly string[], options: RemoteStoreOptions = {}): Store {
  return new RemoteStore(resolveRemoteOptions(urls, options));
}

/**
 * Like {@link remoteStore}, but connects first and takes the durability from the server. Rejects with `STORE_UNAVAILABLE` if no
 * server answers.
 *
 * @example
 * const store = await connectRemote(["https://locks-1:7420", "https://locks-2:7420"], { token });
 */
export async function connectRemote(
  urls: string | readonly string[],
  options: RemoteStoreOptions = {},
): Promise<Store> {
  const store = new RemoteStore(resolveRemoteOptions(urls, options));
  try {
    await store.learn();
    return store;
  } catch (error) {
    await store.close();
    throw error;
  }
}

class RemoteStore implements Store {
  readonly name = "remote";
  durability: Durability;
  counts = true;
  readonly #failover: Failover;
  readonly #waiting = new WaitingClaims();
  #welcome: session.Welcome | undefined;
  #closed = false;

  constructor(settings: RemoteSettings) {
    this.durability = settings.durability;
    this.#failover = new Failover(settings, AGENT, this.#waiting, (welcome) => this.#refusalOf(welcome));
  }

  /** Takes the durability of the server. Servers with a lower one are not used from then on. */
  async learn(): Promise<void> {
    await this.#failover.connect();
    if (this.#welcome === undefined) return;
    this.durability = readDurability(this.#welcome.durability);
    this.counts = this.#welcome.counts;
  }

  // With an open connection, requests are written at once, so that they keep their order. `acquire` and `release` are not async
  // functions, for speed.

  acquire(request: ClaimRequest): Promise<AcquireAnswer> {
    try {
      checkRequest(request);
      return (
        this.#connected()?.acquireClaim(request) ??
        this.#connect().then((connection) => connection.acquireClaim(request))
      );
    } catch (error) {
      return Promise.reject(error);
    }
  }

  release(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    try {
      checkRefs(refs);
      this.#waiting.released(refs);
      return (
        this.#connected()?.releaseClaims(refs) ??
        this.#connect().then((connection) => connection.releaseClaims(refs))
      );
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async renew(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    checkRefs(refs);
    const connection = this.#connected() ?? (await this.#connect());
    const answers = await connection.renewClaims(refs);
    this.#waiting.renewed(refs, answers);
    return answers;
  }

  async look(query: LookQuery): Promise<LookPage> {
    checkQuery(query);
    const connection = this.#connected() ?? (await this.#connect());
    return connection.lookAt(query);
  }

  onGrant(owner: string, listener: GrantListener): Unsubscribe {
    return this.#failover.listen(owner, listener);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#failover.close(closedStore("remote"));
  }

  /** The open connection, if there is one. */
  #connected(): Connection | undefined {
    if (this.#closed) throw closedStore("remote");
    return this.#failover.current;
  }

  #connect(): Promise<Connection> {
    return this.#closed ? Promise.reject(closedStore("remote")) : this.#failover.connect();
  }

  #refusalOf(welcome: session.Welcome): HoldfastError | undefined {
    this.#welcome = welcome;
    const found = readDurability(welcome.durability);
    if (durabilities.indexOf(found) < durabilities.indexOf(this.durability)) {
      return new HoldfastError(
        "DURABILITY_UNAVAILABLE",
        `The lock server has a ${welcome.store} store with the durability "${found}", but the option durability requires "${this.durability}". ` +
          "Use a server with a more durable store, or lower that option.",
      );
    }
    return undefined;
  }
}

function checkRefs(refs: readonly RenewRef[]): void {
  for (const ref of refs) checkRenewRef(ref);
}
