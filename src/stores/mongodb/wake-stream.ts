/**
 * Hears of grants that other processes have made, through one change stream of the collection.
 *
 * Every write says whom it has granted the key, and the server passes on only what names an owner of this process. A stream
 * that breaks is opened again where it ended; what cannot be made up for costs its waiters no more than a heartbeat.
 */
import type { Document, MongodbChangeStream, Records } from "./database.ts";

type OnWake = (key: string, id: string) => void;

/** After a stream broke, how long until the next is opened: so long at first, doubling up to so long. */
const FIRST_RETRY_MS = 100;
const MAX_RETRY_MS = 10_000;

export class WakeStream {
  readonly #records: Records;
  readonly #listeners = new Map<string, OnWake>();
  #open: OpenStream | undefined;
  /** Openings follow one another, so that the latest one knows all owners. */
  #opening: Promise<unknown> = Promise.resolve();
  /** The end of streams that nobody needed any more. Whoever closes waits for that. */
  #ending: Promise<unknown> = Promise.resolve();
  #retry: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(records: Records) {
    this.#records = records;
  }

  /** Resolves when wakes of this owner are heard. */
  async listen(owner: string, onWake: OnWake): Promise<() => void> {
    this.#listeners.set(owner, onWake);
    const end = () => {
      if (this.#listeners.get(owner) !== onWake) return;
      this.#listeners.delete(owner);
      if (this.#listeners.size === 0) void this.#stop();
    };
    try {
      await this.#reopen();
    } catch (error) {
      end();
      throw error;
    }
    return end;
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#listeners.clear();
    clearTimeout(this.#retry);
    await this.#opening.catch(() => {});
    await this.#stop();
  }

  /** Opens a stream that hears all owners, from where the one before has come to. */
  #reopen(): Promise<void> {
    const next = () => this.#openNext();
    const opening = this.#opening.then(next, next);
    this.#opening = opening;
    return opening;
  }

  async #openNext(): Promise<void> {
    if (this.#closed || this.#listeners.size === 0) return;
    const before = this.#open;
    this.#open = await this.#openAfter(before?.resumeToken);
    await before?.end();
    if (this.#closed || this.#listeners.size === 0) await this.#stop();
  }

  async #openAfter(token: unknown): Promise<OpenStream> {
    const stream = new OpenStream(this.#records, [...this.#listeners.keys()], token, {
      onChange: (change) => this.#tell(change),
      onBroken: () => this.#mend(stream, FIRST_RETRY_MS),
    });
    try {
      await stream.start();
      return stream;
    } catch (error) {
      // Where the one before ended may be too long ago for the server to remember.
      if (token === undefined) throw error;
      return this.#openAfter(undefined);
    }
  }

  /** Opens another in place of one that has broken, as long as somebody listens. */
  #mend(broken: OpenStream, delayMs: number): void {
    const isNeeded = () => this.#open === broken && !this.#closed && this.#listeners.size > 0;
    if (!isNeeded()) return;
    this.#retry = setTimeout(() => {
      if (!isNeeded()) return;
      this.#reopen().catch(() => this.#mend(broken, Math.min(2 * delayMs, MAX_RETRY_MS)));
    }, delayMs);
    // Whoever waits for a grant has heartbeats besides.
    this.#retry.unref();
  }

  #stop(): Promise<unknown> {
    const open = this.#open;
    this.#open = undefined;
    this.#ending = Promise.all([this.#ending, open?.end()]);
    return this.#ending;
  }

  #tell(change: Document): void {
    const { documentKey, fullDocument, updateDescription } = change as {
      documentKey?: { _id?: unknown };
      fullDocument?: { wakes?: unknown };
      updateDescription?: { updatedFields?: { wakes?: unknown } };
    };
    const key = documentKey?._id;
    if (typeof key !== "string") return;
    for (const [owner, id] of readWakes(updateDescription?.updatedFields?.wakes ?? fullDocument?.wakes)) {
      this.#listeners.get(owner)?.(key, id);
    }
  }
}

interface StreamEvents {
  onChange(change: Document): void;
  /** Called once, unless the stream was ended. */
  onBroken(): void;
}

class OpenStream {
  readonly #stream: MongodbChangeStream;
  readonly #events: StreamEvents;
  readonly #startedAfter: unknown;
  #ended = false;

  constructor(records: Records, owners: readonly string[], token: unknown, events: StreamEvents) {
    this.#events = events;
    this.#startedAfter = token;
    this.#stream = records.watch([{ $match: namesOneOf(owners) }, { $project: told }], {
      readPreference: "primary",
      ...(token === undefined ? {} : { resumeAfter: token }),
    });
  }

  /** It moves on with the server also while there is nothing to tell, so that the server still knows it when it is needed. */
  get resumeToken(): unknown {
    return this.#stream.resumeToken ?? this.#startedAfter;
  }

  /**
   * Resolves when the server has opened the stream. Its first change may be long in coming, and even a `tryNext` of the
   * driver would keep the first waiter for a second: MongoDB holds back an answer without changes for that long.
   */
  async start(): Promise<void> {
    const opened = new Promise<void>((resolve) => {
      this.#stream.once("resumeTokenChanged", resolve);
    });
    const first = this.#next();
    try {
      await Promise.race([opened, first]);
    } catch (error) {
      await this.end();
      throw error;
    }
    void this.#follow(first);
  }

  async end(): Promise<void> {
    this.#ended = true;
    // A stream that is broken already may say so once more.
    await this.#stream.close().catch(() => {});
  }

  async #follow(first: Promise<void>): Promise<void> {
    try {
      await first;
      // The driver itself opens it again after a lost connection or a failover.
      while (!this.#ended) await this.#next();
    } catch {
      if (this.#ended) return;
      await this.end();
      this.#events.onBroken();
    }
  }

  async #next(): Promise<void> {
    const change = await this.#stream.next();
    if (!this.#ended) this.#events.onChange(change);
  }
}

/** A resume token is the `_id` of a change, and must not be left out. */
const told: Document = {
  documentKey: 1,
  operationType: 1,
  "fullDocument.wakes": 1,
  "updateDescription.updatedFields.wakes": 1,
};

/** Wakes are one text, not a list: of a list, a stream may tell only which of its places have changed. */
export function namesOneOf(owners: readonly string[]): Document {
  const pattern = owners.map((owner) => escaped(`[${JSON.stringify(owner)},`)).join("|");
  return {
    operationType: { $in: ["insert", "update", "replace"] },
    $or: [
      { "fullDocument.wakes": { $regex: pattern } },
      { "updateDescription.updatedFields.wakes": { $regex: pattern } },
    ],
  };
}

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}

export function readWakes(text: unknown): readonly (readonly [owner: string, id: string])[] {
  if (typeof text !== "string") return [];
  try {
    return JSON.parse(text) as [string, string][];
  } catch {
    return [];
  }
}
