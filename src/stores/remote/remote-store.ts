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
import { Connection } from "./connection.ts";
import type { Link } from "./link.ts";
import { type RemoteSettings, type RemoteStoreOptions, resolveRemoteOptions } from "./options.ts";
import { WaitingClaims } from "./waiting-claims.ts";

/** What this library calls itself to a server. */
const AGENT = "holdfast-node";

/**
 * The store of a lock server, over one connection. Several URLs are servers over the same store, tried in turn.
 *
 * It connects when it is first used. What durability the store behind the server has cannot be known by then, so it counts as
 * what the options say; {@link connectRemote} asks.
 *
 * @example
 * const locks = createLocks(remoteStore("http://locks:7420", { token }));
 */
export function remoteStore(urls: string | readonly string[], options: RemoteStoreOptions = {}): Store {
  return new RemoteStore(resolveRemoteOptions(urls, options));
}

/**
 * The same, once a server has been reached and has said what its store is. Rejects with `STORE_UNAVAILABLE` when none
 * answers.
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
  readonly #connection: Connection;
  readonly #waiting = new WaitingClaims();
  #welcome: session.Welcome | undefined;
  #closed = false;

  constructor(settings: RemoteSettings) {
    this.durability = settings.durability;
    this.#connection = new Connection(settings, AGENT, this.#waiting, (welcome) => this.#judge(welcome));
  }

  /** Takes over what the server says of its store. From then on a server that has less is not used. */
  async learn(): Promise<void> {
    await this.#connection.link();
    if (this.#welcome === undefined) return;
    this.durability = readDurability(this.#welcome.durability);
    this.counts = this.#welcome.counts;
  }

  // Where there is a link, everything is asked at once, so that nothing overtakes what was asked before it. The first two are
  // not async functions because every lock cycle pays for them.

  acquire(request: ClaimRequest): Promise<AcquireAnswer> {
    try {
      checkRequest(request);
      return (
        this.#linkNow()?.acquireClaim(request) ?? this.#link().then((link) => link.acquireClaim(request))
      );
    } catch (error) {
      return Promise.reject(error);
    }
  }

  release(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    try {
      checkRefs(refs);
      this.#waiting.released(refs);
      return this.#linkNow()?.releaseClaims(refs) ?? this.#link().then((link) => link.releaseClaims(refs));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async renew(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    checkRefs(refs);
    const link = this.#linkNow() ?? (await this.#link());
    const answers = await link.renewClaims(refs);
    this.#waiting.renewed(refs, answers);
    return answers;
  }

  async look(query: LookQuery): Promise<LookPage> {
    checkQuery(query);
    const link = this.#linkNow() ?? (await this.#link());
    return link.lookAt(query);
  }

  onGrant(owner: string, listener: GrantListener): Unsubscribe {
    return this.#connection.listen(owner, listener);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#connection.close(closedStore("remote"));
  }

  /** The link, if there is one. */
  #linkNow(): Link | undefined {
    if (this.#closed) throw closedStore("remote");
    return this.#connection.current;
  }

  /** The link, as soon as there is one. */
  #link(): Promise<Link> {
    return this.#closed ? Promise.reject(closedStore("remote")) : this.#connection.link();
  }

  #judge(welcome: session.Welcome): HoldfastError | undefined {
    this.#welcome = welcome;
    const found = readDurability(welcome.durability);
    if (durabilities.indexOf(found) < durabilities.indexOf(this.durability)) {
      return new HoldfastError(
        "DURABILITY_UNAVAILABLE",
        `The lock server has a ${welcome.store} store with the durability "${found}", but the option durability demands "${this.durability}". ` +
          "Use a server with a more durable store, or lower that option.",
      );
    }
    return undefined;
  }
}

function checkRefs(refs: readonly RenewRef[]): void {
  for (const ref of refs) checkRenewRef(ref);
}
