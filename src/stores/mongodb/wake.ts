/**
 * Grants by other processes, through one change stream of the collection.
 *
 * Every write names the owners that it grants the key, and the server filters by the owners of this process. A broken stream resumes where
 * it ended. If it cannot, waiters learn of their grants at their next heartbeats.
 */
import type { Document, MongodbChangeStream, Records } from "./client.ts";

type OnWake = (key: string, id: string) => void;

/** The pause before a broken stream is opened again. It doubles up to the maximum. */
const FIRST_RETRY_MS = 100;
const MAX_RETRY_MS = 10_000;

export class WakeStream {
  readonly #records: Records;
  readonly #listeners = new Map<string, OnWake>();
  #open: OpenStream | undefined;
  /** Streams open one after the other, so the latest knows all owners. */
  #opening: Promise<unknown> = Promise.resolve();
  /** Streams that are ending. `close` waits for them. */
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

  /** Opens a stream for all owners, from where the previous stream ended. */
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
      // The server may have forgotten where the previous stream ended.
      if (token === undefined) throw error;
      return this.#openAfter(undefined);
    }
  }

  #mend(broken: OpenStream, delayMs: number): void {
    const isNeeded = () => this.#open === broken && !this.#closed && this.#listeners.size > 0;
    if (!isNeeded()) return;
    this.#retry = setTimeout(() => {
      if (!isNeeded()) return;
      this.#reopen().catch(() => this.#mend(broken, Math.min(2 * delayMs, MAX_RETRY_MS)));
    }, delayMs);
    // Waiters have heartbeats as well.
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
    this.#stream = records.watch([{ $match: namesOneOf(owners) }, { $project: projection }], {
      readPreference: "primary",
      ...(token === undefined ? {} : { resumeAfter: token }),
    });
  }

  /** The server advances it without changes as well, so it does not grow too old. */
  get resumeToken(): unknown {
    return this.#stream.resumeToken ?? this.#startedAfter;
  }

  /** Resolves when the server has opened the stream. `tryNext` would take a second: MongoDB delays replies without changes. */
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
    // A broken stream may fail again.
    await this.#stream.close().catch(() => {});
  }

  async #follow(first: Promise<void>): Promise<void> {
    try {
      await first;
      // The driver resumes the stream after a lost connection or a failover.
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
const projection: Document = {
  documentKey: 1,
  operationType: 1,
  "fullDocument.wakes": 1,
  "updateDescription.updatedFields.wakes": 1,
};

/** Wakes are one text: of a list, a stream may report only the changed elements. */
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
