/**
 * A store that lives in another process: the whole `Store` contract over the channel that Node opens between a
 * process and its children.
 *
 * It is what reaching a store over any wire takes. Every request has a number, and its answer bears the same one.
 * Errors travel as code and message. Grants are pushed. A channel that breaks leaves every open request without an
 * answer, and that is what they reject with: STORE_UNAVAILABLE, because nobody knows what became of them.
 *
 * The channel has to be opened with `serialization: "advanced"`, which carries bigint fences as they are.
 */
import type { ChildProcess } from "node:child_process";
import {
  type ClaimRef,
  type Durability,
  type ErrorCode,
  type GrantListener,
  HoldfastError,
  type Store,
  StoreUnavailableError,
  type Unsubscribe,
} from "holdfast";

type Verb = "acquire" | "renew" | "release" | "look";

/** What a child sends. */
type Request =
  | { readonly type: "request"; readonly number: number; readonly verb: Verb; readonly argument: unknown }
  | { readonly type: "listen" | "unlisten"; readonly owner: string };

/** What the parent sends. */
type Reply =
  | { readonly type: "answer"; readonly number: number; readonly answer: unknown }
  | { readonly type: "failure"; readonly number: number; readonly failure: Failure }
  | { readonly type: "grant"; readonly owner: string; readonly refs: readonly ClaimRef[] };

/** An error as it travels. */
interface Failure {
  readonly code: ErrorCode;
  readonly message: string;
  readonly key: string | undefined;
}

/** Serves a store to one child. Claims of a child that dies stay as they are, and expire. */
export function serveStore(store: Store, child: ChildProcess): void {
  const listening = new Map<string, Unsubscribe>();
  const send = (reply: Reply) => {
    // A child may end at any moment. What it no longer hears costs it nothing.
    if (child.connected) child.send(reply, () => {});
  };

  async function answer(number: number, verb: Verb, argument: unknown): Promise<void> {
    try {
      send({ type: "answer", number, answer: await call(store, verb, argument) });
    } catch (error) {
      const { code, message, key } = HoldfastError.from(error);
      send({ type: "failure", number, failure: { code, message, key } });
    }
  }

  child.on("message", (message) => {
    if (!isRequest(message)) return;
    if (message.type === "request") {
      void answer(message.number, message.verb, message.argument);
      return;
    }
    const { owner } = message;
    listening.get(owner)?.();
    if (message.type === "unlisten") listening.delete(owner);
    else
      listening.set(
        owner,
        store.onGrant(owner, (refs) => send({ type: "grant", owner, refs })),
      );
  });
  child.once("disconnect", () => {
    for (const unsubscribe of listening.values()) unsubscribe();
    listening.clear();
  });
}

/** The store itself checks everything that it is asked, so arguments are passed on as they came. */
function call(store: Store, verb: Verb, argument: unknown): Promise<unknown> {
  switch (verb) {
    case "acquire":
      return store.acquire(argument as Parameters<Store["acquire"]>[0]);
    case "renew":
      return store.renew(argument as Parameters<Store["renew"]>[0]);
    case "release":
      return store.release(argument as Parameters<Store["release"]>[0]);
    case "look":
      return store.look(argument as Parameters<Store["look"]>[0]);
  }
}

function isRequest(message: unknown): message is Request {
  return hasType(message) && ["request", "listen", "unlisten"].includes(message.type);
}

function isReply(message: unknown): message is Reply {
  return hasType(message) && ["answer", "failure", "grant"].includes(message.type);
}

function hasType(message: unknown): message is { readonly type: string } {
  return typeof message === "object" && message !== null && "type" in message;
}

/** What the child has to know about the store on the other side. */
export interface IpcStoreOptions {
  /** The durability of the store that the parent serves. Default "ephemeral". */
  readonly durability?: Durability;
}

/**
 * The store that this process's parent serves with `serveStore`.
 *
 * Rejects with `STORE_UNAVAILABLE` once the channel is gone, and with `CLOSED` after `close`.
 */
export function ipcStore(options: IpcStoreOptions = {}): Store {
  return new IpcStore(options.durability ?? "ephemeral");
}

interface OpenRequest {
  resolve(answer: unknown): void;
  reject(error: HoldfastError): void;
}

class IpcStore implements Store {
  readonly name = "ipc";
  readonly durability: Durability;
  readonly counts = true;
  readonly #open = new Map<number, OpenRequest>();
  readonly #listeners = new Map<string, GrantListener>();
  readonly #onMessage = (message: unknown) => this.#received(message);
  readonly #onDisconnect = () => this.#rejectAll(() => unavailable());
  #number = 0;
  #closed = false;

  constructor(durability: Durability) {
    this.durability = durability;
    process.on("message", this.#onMessage);
    process.once("disconnect", this.#onDisconnect);
  }

  acquire: Store["acquire"] = (request) => this.#request("acquire", request);
  renew: Store["renew"] = (refs) => this.#request("renew", refs);
  release: Store["release"] = (refs) => this.#request("release", refs);
  look: Store["look"] = (query) => this.#request("look", query);

  onGrant(owner: string, listener: GrantListener): Unsubscribe {
    this.#listeners.set(owner, listener);
    this.#post({ type: "listen", owner }, () => {});
    return () => {
      if (this.#listeners.get(owner) !== listener) return;
      this.#listeners.delete(owner);
      this.#post({ type: "unlisten", owner }, () => {});
    };
  }

  /** Leaves the channel open, since it was not opened here. */
  async close(): Promise<void> {
    this.#closed = true;
    process.off("message", this.#onMessage);
    process.off("disconnect", this.#onDisconnect);
    this.#listeners.clear();
    this.#rejectAll(() => closed());
  }

  #request<T>(verb: Verb, argument: unknown): Promise<T> {
    const number = ++this.#number;
    return new Promise<T>((resolve, reject) => {
      if (this.#closed) throw closed();
      this.#open.set(number, { resolve: (answer) => resolve(answer as T), reject });
      this.#post({ type: "request", number, verb, argument }, (cause) => {
        this.#take(number)?.reject(unavailable(cause));
      });
    });
  }

  #post(request: Request, failed: (cause: unknown) => void): void {
    if (process.send === undefined || !process.connected) {
      failed(undefined);
      return;
    }
    process.send(request, undefined, undefined, (error) => {
      if (error !== null) failed(error);
    });
  }

  #received(message: unknown): void {
    if (!isReply(message)) return;
    if (message.type === "grant") this.#listeners.get(message.owner)?.(message.refs);
    else if (message.type === "answer") this.#take(message.number)?.resolve(message.answer);
    else this.#take(message.number)?.reject(asError(message.failure));
  }

  #take(number: number): OpenRequest | undefined {
    const open = this.#open.get(number);
    this.#open.delete(number);
    return open;
  }

  #rejectAll(reason: () => HoldfastError): void {
    for (const number of [...this.#open.keys()]) this.#take(number)?.reject(reason());
  }
}

function asError({ code, message, key }: Failure): HoldfastError {
  if (code === "STORE_UNAVAILABLE") return new StoreUnavailableError(message, { key });
  return new HoldfastError(code, message, { key });
}

function unavailable(cause?: unknown): StoreUnavailableError {
  return new StoreUnavailableError("The channel to the process that keeps the locks is closed.", { cause });
}

function closed(): HoldfastError {
  return new HoldfastError("CLOSED", "The ipc store is closed. Create another store.");
}
