/** Subscriptions to a channel, over a connection of the store's own or of the client. */
import { StoreUnavailableError } from "../../store/index.ts";
import { type SilenceWatch, whileAnswering } from "./silence.ts";

/** The time to connect and subscribe. A client may lose a command with its connection, and then never settles it. */
const PATIENCE_MS = 5_000;

export interface SubscriptionEvents {
  onMessage(message: string): void;
  /** The subscription is confirmed, for the first time or again. */
  onListening(): void;
  /** The subscription failed for good. Called at most once. */
  onBroken(error: unknown): void;
}

export interface Subscription {
  /** Stops listening. No event follows. */
  end(): void;
}

/** A connection that only listens. */
export interface Subscriber {
  onMessage(listener: (message: string) => void): unknown;
  /** Called for each connection on which to subscribe. */
  onReady(listener: () => void): unknown;
  /** Closed for good. */
  onEnd(listener: () => void): unknown;
  /** Without a listener, an error ends the process. */
  onError(listener: (error: unknown) => void): unknown;
  subscribe(): Promise<unknown>;
  /** Sends a PING. */
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

/** A channel on a connection of the client, which reconnects by itself. */
export function sharedConnection(
  subscribe: () => Promise<unknown>,
  unsubscribe: () => Promise<unknown>,
  events: SubscriptionEvents,
  watch: SilenceWatch,
): Subscription {
  const leave = watch.listen();
  const { told, end } = untilEnded(events, () => {
    leave();
    // Ignores the error of a client that is closed.
    attempt(unsubscribe).catch(() => {});
  });
  attempt(subscribe).then(told.onListening, told.onBroken);
  return { end };
}

/** Passes events on until the caller or the connection ends the subscription, and cleans up once. */
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

/** Rejects if the client throws. */
async function attempt(call: () => Promise<unknown>): Promise<unknown> {
  return call();
}
