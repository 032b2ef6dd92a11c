/** One listener for each signal, however many calls share it: Node 20 warns of a leak when a signal has more than ten. */

class AbortListener {
  readonly callbacks = new Set<() => void>();

  handleEvent(): void {
    for (const callback of this.callbacks) callback();
  }
}

const listeners = new WeakMap<AbortSignal, AbortListener>();

/** Calls back when the signal aborts, unless it is unsubscribed before that. A signal that has aborted already calls nothing. */
export function onAbort(signal: AbortSignal, abort: () => void): () => void {
  let listener = listeners.get(signal);
  if (listener === undefined) {
    listener = new AbortListener();
    listeners.set(signal, listener);
    signal.addEventListener("abort", listener);
  }
  const { callbacks } = listener;
  // A function of its own, so that the same callback can be subscribed twice.
  const callback = () => abort();
  callbacks.add(callback);
  return () => {
    if (!callbacks.delete(callback) || callbacks.size > 0) return;
    listeners.delete(signal);
    signal.removeEventListener("abort", listener);
  };
}
