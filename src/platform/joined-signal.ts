import { onAbort } from "./abort-listeners.ts";

export interface JoinedSignal {
  readonly signal: AbortSignal;
  /** From now on it listens to none of them. */
  part(): void;
}

/**
 * A signal that aborts with the first of several, for as long as something is under way. Not AbortSignal.any: a signal that outlives many
 * calls would remember what was made of it for each of them, and keep alive whatever somebody has left listening to that.
 */
export function joinSignals(signals: readonly AbortSignal[]): JoinedSignal {
  const controller = new AbortController();
  const abort = () => controller.abort(signals.find((signal) => signal.aborted)?.reason);
  const parts = signals.map((signal) => onAbort(signal, abort));
  if (signals.some((signal) => signal.aborted)) abort();
  return {
    signal: controller.signal,
    part() {
      for (const part of parts) part();
    },
  };
}
