/**
 * One watch stream for all that this store wants to be told: leases that end, and wake-ups of its owners. All of it are hints.
 * The stream mends itself, begins with the present each time, and says so, since something may have happened in between.
 */
import type { Timer, Unsubscribe } from "../../core/index.ts";
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
  /** Lets whoever began it go on. */
  resolve(): void;
  reject(error: Error): void;
}

/** After a failure, how long until the next attempt: so long at first, doubling up to so long. */
const FIRST_RETRY_MS = 100;
const MAX_RETRY_MS = 2_000;

export class Watching {
  readonly #connection: Connection;
  readonly #onGap: () => void;
  readonly #watches = new Map<string, Watch>();
  #ids = 0;
  #stream: WatchStream | undefined;
  #isOpening = false;
  #retry: Timer | undefined;
  #retryMs = FIRST_RETRY_MS;
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
      const end = () => this.#end(id);
      this.#watches.set(id, { ...watched, id, resolve: () => resolve(end), reject });
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
    for (const watch of this.#watches.values()) watch.reject(new Error("The store is closed."));
    this.#watches.clear();
  }

  #open(): void {
    if (this.#isOpening || this.#closed || this.#watches.size === 0) return;
    this.#retry?.cancel();
    this.#isOpening = true;
    // A stream has no deadline: it is to last.
    this.#connection.client.watchClient.watch().then(
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
    for (const id of this.#watches.keys()) this.#create(stream, id);
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
    if (response.canceled) {
      // Not by us, or the watch would be gone: rights were taken away, for instance. The others go on.
      this.#watches.delete(response.watch_id);
      watch?.reject(new Error("etcd refuses to watch."));
      return;
    }
    if (watch === undefined) return;
    if (response.created) {
      this.#retryMs = FIRST_RETRY_MS;
      watch.resolve();
      this.#onGap();
    }
    for (const { kv } of response.events) watch.onEvent(kv);
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
