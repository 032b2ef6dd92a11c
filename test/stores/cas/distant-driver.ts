/** A driver behind a network: each request and each reply takes a while, which a test decides one by one. */
import type { Clock } from "holdfast";
import type { CasDriver, SwapBatch } from "holdfast/cas";

export type Request = "read" | "swap" | "list" | "sweep";

/** What one request meets on its way. */
export interface Journey {
  /** How long it takes to get there, and the reply to come back. */
  readonly thereMs?: number;
  readonly backMs?: number;
  /** Rejects the request with this when the time for the reply has come; `thereMs` is Infinity where it never got there. */
  readonly error?: Error;
}

export interface DistantOptions {
  readonly clock: Clock;
  /** Asked for every request. */
  journey(request: Request, batch: SwapBatch | undefined): Journey;
  /** Whether wake-ups get through. Default true. */
  readonly pushes?: boolean;
}

export function distantDriver(near: CasDriver, options: DistantOptions): CasDriver {
  const { clock, journey, pushes = true } = options;

  const pause = (ms: number | undefined) =>
    ms === undefined || ms <= 0
      ? undefined
      : new Promise<void>((resolve) => void clock.setTimer(ms, resolve).keepAlive(true));

  async function travel<R>(request: Request, serve: () => Promise<R>, batch?: SwapBatch): Promise<R> {
    const { thereMs, backMs, error } = journey(request, batch);
    if (thereMs === Number.POSITIVE_INFINITY) {
      await pause(backMs);
      throw error ?? new Error("lost");
    }
    await pause(thereMs);
    const reply = await serve();
    await pause(backMs);
    if (error !== undefined) throw error;
    return reply;
  }

  const { listen } = near;
  return {
    name: near.name,
    durability: near.durability,
    get checksTime() {
      return near.checksTime;
    },
    ...(near.lifetimes === undefined ? {} : { lifetimes: near.lifetimes }),
    ...(near.limits === undefined ? {} : { limits: near.limits }),
    ...(near.prepare === undefined ? {} : { prepare: near.prepare.bind(near) }),
    read: (keys) => travel("read", () => near.read(keys)),
    swap: (batch) => travel("swap", () => near.swap(batch), batch),
    list: (prefix, after, limit) => travel("list", () => near.list(prefix, after, limit)),
    sweep: (limit) => travel("sweep", async () => (await near.sweep?.(limit)) ?? 0),
    ...(pushes && listen !== undefined ? { listen: listen.bind(near) } : {}),
  };
}
