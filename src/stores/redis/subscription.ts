/** Listening to a channel, whatever the client, without an error that nobody handles. */
import { StoreUnavailableError } from "../../store/index.ts";
import { type SilenceWatch, whileAnswering } from "./silence.ts";

/**
 * How long it may take to connect and to subscribe before another connection is tried. A client may lose a command together
 * with its connection, and then neither answers it nor fails it.
 */
const PATIENCE_MS = 5_000;

export interface SubscriptionEvents {
  onMessage(message: string): void;
  /** It listens, for the first time or again. */
  onListening(): void;
  /** It does not listen, and will not by itself. Called once at the most. */
  onBroken(error: unknown): void;
}

export interface Subscription {
  /** Stops listening. No event comes after it. */
  end(): void;
}

/** A connection that does nothing but listen. */
export interface Subscriber {
  onMessage(listener: (message: string) => void): unknown;
  /** Called when it is time to subscribe: in the beginning, and after every drop unless that happens by itself. */
  onReady(listener: () => void): unknown;
  /** Closed for good. */
  onEnd(listener: () => void): unknown;
  /** Somebody has to listen to errors, or they end the process. */
  onError(listener: (error: unknown) => void): unknown;
  subscribe(): Promise<unknown>;
  /** Asks for any answer over this connection. */
  ask(): Promise<unknown>;
  disconnect(): unknown;
}

export function ownConnection(subscriber: Subscriber, events: SubscriptionEvents): Subscription {
  let stopAsking = () => {};
  const { told, end } = untilEnded(events, () => {
    stopAsking();
    subscriber.disconnect();
  });
  let lastError: unknown = new Error("The connection for subscriptions was closed.");
  subscriber.onError((error) => {
    lastError = error;
  });
  subscriber.onMessage((message) => told.onMessage(message));
  subscriber.onEnd(() => told.onBroken(lastError));
  subscriber.onReady(() => {
    const silence = new StoreUnavailableError(
      `Redis did not confirm a subscription within ${PATIENCE_MS} ms.`,
    );
    const timer = setTimeout(() => told.onBroken(silence), PATIENCE_MS).unref();
    attempt(() => subscriber.subscribe())
      .then(told.onListening, told.onBroken)
      .finally(() => clearTimeout(timer));
  });
  stopAsking = whileAnswering(
    () => attempt(() => subscriber.ask()),
    () => told.onBroken(new StoreUnavailableError("The connection for subscriptions went silent.")),
  );
  return { end };
}

/** A channel on a connection that belongs to the client, which mends it. */
export function sharedConnection(
  subscribe: () => Promise<unknown>,
  unsubscribe: () => Promise<unknown>,
  events: SubscriptionEvents,
  watch: SilenceWatch,
): Subscription {
  const leave = watch.listen();
  const { told, end } = untilEnded(events, () => {
    leave();
    // A client that is closed by now has no subscriptions either.
    attempt(unsubscribe).catch(() => {});
  });
  attempt(subscribe).then(told.onListening, told.onBroken);
  return { end };
}

/** Passes events on until the end, which is the caller's or that of the connection, and cleans up once. */
function untilEnded(events: SubscriptionEvents, cleanUp: () => void) {
  let ended = false;
  const end = () => {
    if (ended) return;
    ended = true;
    cleanUp();
  };
  const told: SubscriptionEvents = {
    onMessage: (message) => ended || events.onMessage(message),
    onListening: () => ended || events.onListening(),
    onBroken(error) {
      if (ended) return;
      end();
      events.onBroken(error);
    },
  };
  return { told, end };
}

/** A client may throw where it should reject. */
async function attempt(call: () => Promise<unknown>): Promise<unknown> {
  return call();
}
