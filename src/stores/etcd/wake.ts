/**
 * One watch stream for all that this store wants to be told: leases that end, and wake-ups of its owners. All of it are hints.
 * The stream mends itself, begins with the present each time, and says so, since something may have happened in between.
 */
import type { Timer } from "../../platform/index.ts";
import type { Unsubscribe } from "../../store/index.ts";
import type { EtcdKeyValue, EtcdStream, EtcdWatchRequest, EtcdWatchResponse } from "./client.ts";
import type { Connection } from "./connection.ts";
import { endOf } from "./keys.ts";

export type WatchStream = EtcdStream<EtcdWatchRequest, EtcdWatchResponse>;

export interface Watched {
  /** What the keys begin with. */
  readonly prefix: Buffer;
  /** Whether to be told of keys that are written, or of those that are removed. */
  readonly what: "written" | "removed";
  onEvent(kv: EtcdKeyValue): void;
}

interface Watch extends Watched {
  readonly id: string;
  /** Whether etcd has ever watched. Then it is not given up. */
  hasBegun: boolean;
  /** Lets whoever began it go on. */
  resolve(): void;
  reject(error: Error): void;
}

/** After a failure, how long until the next attempt: so long at first, doubling up to so long. */
const FIRST_RETRY_MS = 100;
const MAX_RETRY_MS = 2_000;
/** How often in a row etcd may refuse to watch until those who have never watched are told. */
const REFUSALS = 3;

export class Watching {
  readonly #connection: Connection;
  readonly #onGap: () => void;
  readonly #watches = new Map<string, Watch>();
  /** Those that the present stream has begun. */
  readonly #begun = new Set<string>();
  #ids = 0;
  #stream: WatchStream | undefined;
  #isOpening = false;
  #retry: Timer | undefined;
  #retryMs = FIRST_RETRY_MS;
  #refusals = 0;
  /** Those that the present stream was opened for, and has not begun yet. */
  #awaited = new Set<string>();
  #closed = false;

  /** `onGap` is called when events may have been missed. */
  constructor(connection: Connection, onGap: () => void) {
    this.#connection = connection;
    this.#onGap = onGap;
  }

  /** Resolves when etcd watches. Then it goes on, also after a break, until it is ended. */
  watch(watched: Watched): Promise<Unsubscribe> {
    const id = String(++this.#ids);
    return new Promise((resolve, reject) => {
      if (this.#closed) throw closed();
      const end = () => this.#end(id);
      this.#watches.set(id, { ...watched, id, hasBegun: false, resolve: () => resolve(end), reject });
      if (this.#stream === undefined) this.#open();
      else this.#create(this.#stream, id);
    });
  }

  close(): void {
    this.#closed = true;
    this.#retry?.cancel();
    const stream = this.#stream;
    this.#stream = undefined;
    if (stream !== undefined) quit(stream);
    for (const watch of this.#watches.values()) watch.reject(closed());
    this.#watches.clear();
  }

  #open(): void {
    if (this.#isOpening || this.#closed || this.#watches.size === 0) return;
    this.#retry?.cancel();
    this.#isOpening = true;
    this.#openStream().then(
      (stream) => {
        this.#isOpening = false;
        this.#begin(stream);
      },
      () => {
        this.#isOpening = false;
        this.#tryLater();
      },
    );
  }

  async #openStream(): Promise<WatchStream> {
    // The client notices that its login is no longer valid by an answer to a request, and not by what a stream says.
    if (this.#refusals > 0)
      await this.#connection.range({ key: this.#connection.keys.swept, keys_only: true });
    // A stream has no deadline: it is to last.
    return this.#connection.client.watchClient.watch();
  }

  #begin(stream: WatchStream): void {
    // Ended streams tell more than once that they have.
    stream.on("error", () => this.#lose(stream));
    stream.on("end", () => this.#lose(stream));
    stream.on("data", (response) => this.#hear(stream, response));
    if (this.#closed) {
      quit(stream);
      return;
    }
    this.#stream = stream;
    this.#begun.clear();
    this.#awaited = new Set(this.#watches.keys());
    for (const id of this.#awaited) this.#create(stream, id);
  }

  #create(stream: WatchStream, id: string): void {
    const watch = this.#watches.get(id);
    if (watch === undefined) return;
    const { prefix, what } = watch;
    const filters: ("Noput" | "Nodelete")[] = [what === "written" ? "Nodelete" : "Noput"];
    stream.write({ create_request: { key: prefix, range_end: endOf(prefix), filters, watch_id: id } });
  }

  #hear(stream: WatchStream, response: EtcdWatchResponse): void {
    if (stream !== this.#stream) return;
    const watch = this.#watches.get(response.watch_id);
    if (response.canceled && watch !== undefined && this.#begun.has(watch.id)) {
      // This process has read so late that etcd has removed what it should have heard of. All begin anew, with the present.
      this.#lose(stream);
      return;
    }
    if (response.canceled && response.created) {
      this.#refuse(stream);
      return;
    }
    if (watch === undefined || response.canceled) return;
    if (response.created) {
      this.#begun.add(watch.id);
      watch.hasBegun = true;
      watch.resolve();
      this.#stopAwaiting(watch.id);
    }
    for (const { kv } of response.events) watch.onEvent(kv);
  }

  /** One that was awaited has begun, or is not wanted any more. What happened before may have been missed, which is told once for all. */
  #stopAwaiting(id: string): void {
    if (!this.#awaited.delete(id) || this.#awaited.size > 0) return;
    this.#retryMs = FIRST_RETRY_MS;
    this.#refusals = 0;
    this.#onGap();
  }

  /**
   * etcd does not say which watch it refuses. It lacks rights, or its login is over: (1) the process asks for nothing for as long as
   * a login lasts, (2) the stream breaks, (3) another one is opened by the login of before, and nothing is watched over it. So all
   * begin anew, and whoever has never watched is told in the end.
   */
  #refuse(stream: WatchStream): void {
    if (++this.#refusals % REFUSALS === 0) {
      for (const watch of this.#watches.values()) {
        if (watch.hasBegun) continue;
        this.#watches.delete(watch.id);
        watch.reject(new Error("etcd refuses to watch."));
      }
    }
    this.#lose(stream);
  }

  #lose(stream: WatchStream): void {
    if (stream !== this.#stream) return;
    this.#stream = undefined;
    quit(stream);
    this.#tryLater();
  }

  #tryLater(): void {
    if (this.#closed) return;
    this.#retry?.cancel();
    this.#retry = this.#connection.clock.setTimer(this.#retryMs, () => this.#open());
    this.#retryMs = Math.min(2 * this.#retryMs, MAX_RETRY_MS);
  }

  #end(id: string): void {
    if (!this.#watches.delete(id)) return;
    this.#begun.delete(id);
    this.#stopAwaiting(id);
    const stream = this.#stream;
    if (stream === undefined) return;
    if (this.#watches.size > 0) {
      stream.write({ cancel_request: { watch_id: id } });
      return;
    }
    this.#stream = undefined;
    quit(stream);
  }
}

/**
 * Ends a stream. The client takes one that is cancelled while it could still be written to for a failure of its server, breaks
 * off all that others ask of that server, and keeps away from it for a while.
 */
function quit(stream: WatchStream): void {
  stream.end();
  stream.cancel();
}

function closed(): Error {
  return new Error("The store is closed.");
}
